//! One `redis-server` process.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::certificates::Certificates;
use crate::{port, store};

/// How long a server may take until it answers; generous, for a machine that is busy.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// How many ports are tried when somebody else was faster.
const PORT_ATTEMPTS: usize = 5;

/// What a server is started with.
#[derive(Debug, Clone, Default)]
pub struct RedisServerBuilder {
    append_only: bool,
    unix_socket: bool,
    tls: bool,
    lines: Vec<String>,
}

impl RedisServerBuilder {
    /// Keeps every write on disk before it is answered (`appendfsync always`), so that
    /// [`RedisServer::restart`] finds it again after [`RedisServer::kill`].
    #[must_use]
    pub fn append_only(mut self, yes: bool) -> RedisServerBuilder {
        self.append_only = yes;
        self
    }

    /// Listens on a Unix socket as well.
    #[must_use]
    pub fn unix_socket(mut self, yes: bool) -> RedisServerBuilder {
        self.unix_socket = yes;
        self
    }

    /// Listens for TLS as well, on a port of its own, with a certificate of a made-up authority.
    #[must_use]
    pub fn tls(mut self, yes: bool) -> RedisServerBuilder {
        self.tls = yes;
        self
    }

    /// Adds a line of access control, such as `user alice on >secret ~* +@all`.
    #[must_use]
    pub fn acl_line(mut self, line: &str) -> RedisServerBuilder {
        self.lines.push(line.to_owned());
        self
    }

    /// Sets one directive of the server's configuration.
    #[must_use]
    pub fn config(mut self, name: &str, value: &str) -> RedisServerBuilder {
        self.lines.push(format!("{name} {value}"));
        self
    }

    /// Starts it and waits until it answers.
    ///
    /// # Panics
    /// When it doesn't come up, with the end of its output.
    pub async fn start(self) -> RedisServer {
        let mut complaint = String::new();
        for _ in 0..PORT_ATTEMPTS {
            let mut server = RedisServer::prepare(&self);
            match server.launch().await {
                Ok(()) => return server,
                Err(reason) if reason.contains("ddress already in use") => complaint = reason,
                Err(reason) => panic!("{reason}"),
            }
        }
        panic!("{complaint}");
    }
}

/// A running `redis-server` on loopback, with a temporary folder; both end with this value.
#[derive(Debug)]
pub struct RedisServer {
    folder: TempDir,
    port: u16,
    tls_port: Option<u16>,
    unix_socket: Option<PathBuf>,
    authority: Option<PathBuf>,
    child: Option<Child>,
}

impl RedisServer {
    /// A plain server that keeps nothing on disk.
    pub async fn start() -> RedisServer {
        RedisServer::builder().start().await
    }

    /// A server with more to it.
    #[must_use]
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// `redis://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// `unix:///…`, for a server with a Unix socket.
    #[must_use]
    pub fn unix_url(&self) -> String {
        let path = self
            .unix_socket
            .as_ref()
            .expect("this server was started without a Unix socket");
        format!("unix://{}", path.display())
    }

    /// `rediss://localhost:PORT`, for a server with TLS. Its authority is [`RedisServer::authority`].
    #[must_use]
    pub fn tls_url(&self) -> String {
        format!(
            "rediss://localhost:{}",
            self.tls_port.expect("this server was started without TLS")
        )
    }

    /// The file with the certificate of the authority that signed the server's.
    #[must_use]
    pub fn authority(&self) -> &Path {
        self.authority
            .as_deref()
            .expect("this server was started without TLS")
    }

    /// The TCP port without TLS.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the process was started and not killed since.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.child.is_some()
    }

    /// Ends the process at once (`SIGKILL`), as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("an own child can be killed");
            child.wait().expect("an own child can be waited for");
        }
    }

    /// Starts it again on the same port in the same folder, killing it first if it still runs.
    ///
    /// Its log is mended before, as whoever runs a server must after a crash: a server that was
    /// killed in the middle of writing a transaction cuts that off in memory but not whole from
    /// its log, and carries out the rest of it after the next restart.
    pub async fn restart(&mut self) {
        self.kill();
        self.mend_log();
        if let Err(reason) = self.launch().await {
            panic!("{reason}");
        }
    }

    fn mend_log(&self) {
        let manifest = self
            .folder
            .path()
            .join("appendonlydir/appendonly.aof.manifest");
        if !manifest.exists() {
            return;
        }
        let mut mending = Command::new("redis-check-aof")
            .arg("--fix")
            .arg(&manifest)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-check-aof is installed with the server");
        let mut answer = mending.stdin.take().expect("it asks before it cuts");
        // Where there is nothing to mend it asks nothing.
        let _ = std::io::Write::write_all(&mut answer, b"y\n");
        drop(answer);
        mending.wait().expect("it ends");
    }

    /// Stops the process without ending it (`SIGSTOP`): it accepts connections and says nothing.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Deletes everything (`FLUSHALL`).
    pub async fn flush(&self) {
        redis::cmd("FLUSHALL")
            .exec_async(&mut self.client().await)
            .await
            .expect("FLUSHALL");
    }

    /// A connection for the test's own commands, as the default user.
    pub async fn client(&self) -> redis::aio::MultiplexedConnection {
        store::connect(&self.url()).await
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("the server runs");
        kill_process(Pid::from_child(child), signal).expect("an own child can be signalled");
    }

    fn prepare(builder: &RedisServerBuilder) -> RedisServer {
        let folder = tempfile::Builder::new()
            .prefix("redis-")
            .tempdir()
            .expect("a temporary folder");
        let port = port::free();
        let tls_port = builder.tls.then(port::free);
        let unix_socket = builder
            .unix_socket
            .then(|| folder.path().join("redis.sock"));
        let mut lines = format!(
            "bind 127.0.0.1\nport {port}\ndir {}\nsave \"\"\n",
            folder.path().display()
        );
        if builder.append_only {
            lines.push_str("appendonly yes\nappendfsync always\n");
        }
        if let Some(path) = &unix_socket {
            writeln!(lines, "unixsocket {}", path.display()).expect("a String can be written");
        }
        let mut authority = None;
        if let Some(tls_port) = tls_port {
            let files = Certificates::make(folder.path());
            writeln!(
                lines,
                "tls-port {tls_port}\ntls-auth-clients no\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}",
                files.certificate.display(),
                files.key.display(),
                files.authority.display()
            )
            .expect("a String can be written");
            authority = Some(files.authority);
        }
        for line in &builder.lines {
            writeln!(lines, "{line}").expect("a String can be written");
        }
        std::fs::write(folder.path().join("redis.conf"), lines)
            .expect("the temporary folder can be written");
        RedisServer {
            folder,
            port,
            tls_port,
            unix_socket,
            authority,
            child: None,
        }
    }

    async fn launch(&mut self) -> Result<(), String> {
        let path = self.folder.path().join("output.txt");
        let output: File = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .expect("the output file");
        let before = output.metadata().expect("the output file's size").len();
        let errors = output
            .try_clone()
            .expect("a second handle to the output file");
        let child = Command::new("redis-server")
            .arg(self.folder.path().join("redis.conf"))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("redis-server can't be started: {error}; is it installed?"))?;
        self.child = Some(child);
        let end = Instant::now() + START_DEADLINE;
        loop {
            if let Some(status) = self
                .child
                .as_mut()
                .and_then(|child| child.try_wait().expect("an own child"))
            {
                return Err(format!(
                    "redis-server ended with {status}:\n{}",
                    tail(&path)
                ));
            }
            // Its own output says that it's this process that has the port, not another's.
            if said_ready(&path, before) && self.answers().await {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!(
                    "redis-server doesn't answer after {START_DEADLINE:?}:\n{}",
                    tail(&path)
                ));
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn answers(&self) -> bool {
        let ask = async {
            let mut socket = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
            socket.write_all(b"PING\r\n").await.ok()?;
            let mut answer = [0_u8; 64];
            let length = socket.read(&mut answer).await.ok()?;
            let answer = answer.get(..length)?;
            (answer.starts_with(b"+PONG") || answer.starts_with(b"-NOAUTH")).then_some(())
        };
        matches!(timeout(Duration::from_secs(1), ask).await, Ok(Some(())))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // A panic here would hide the test's own.
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn said_ready(output: &Path, from: u64) -> bool {
    let said = std::fs::read(output).unwrap_or_default();
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    String::from_utf8_lossy(said.get(from..).unwrap_or_default())
        .contains("eady to accept connections")
}

fn tail(output: &Path) -> String {
    let said = std::fs::read(output).unwrap_or_default();
    String::from_utf8_lossy(&said)
        .lines()
        .rev()
        .take(20)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect::<Vec<_>>()
        .join("\n")
}
