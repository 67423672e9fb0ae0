//! The demonstration's own daemon: a process that is started, killed and started again.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::Broken;

/// How long it may take to start, to be ready, and to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long one page may take.
const PAGE: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// A port of the system's choice.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// The program with nothing of the caller's configuration in its environment.
pub(super) fn program() -> Result<Command, Broken> {
    let program = std::env::current_exe()
        .map_err(|error| Broken::new(format!("this program can't find itself: {error}")))?;
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"CROSSWAY_") {
            command.env_remove(name);
        }
    }
    own(&mut command);
    Ok(command)
}

/// Makes a process that ends with what holds it. Ctrl-C doesn't reach it, so that it can be ended
/// in its turn.
pub(super) fn own(command: &mut Command) {
    command
        .stdin(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
}

/// A running daemon.
pub(super) struct Daemon {
    folder: PathBuf,
    child: Child,
    /// Where its embedded store answers.
    pub(super) store: SocketAddr,
    /// Where its admin pages are.
    pub(super) admin: SocketAddr,
}

/// What a daemon says when it is up.
#[derive(Deserialize)]
struct Says {
    embedded: SocketAddr,
    admin: SocketAddr,
}

impl Daemon {
    /// Starts one whose state and log are kept in `folder`, on ports that are free.
    pub(super) async fn start(folder: &Path) -> Result<Daemon, Broken> {
        let (child, says) = spawn(folder, ANY, ANY).await?;
        let mut daemon = Daemon {
            folder: folder.to_owned(),
            child,
            store: says.embedded,
            admin: says.admin,
        };
        daemon.ready().await?;
        Ok(daemon)
    }

    /// Ends the process as `kill -9` does, starts it again in the same place, and gives how long
    /// it took until it was ready.
    pub(super) async fn kill_and_start(&mut self) -> Result<Duration, Broken> {
        let failed =
            |error: std::io::Error| Broken::new(format!("the daemon can't be killed: {error}"));
        self.child.kill().await.map_err(failed)?;
        let since = Instant::now();
        (self.child, _) = spawn(&self.folder, self.store, self.admin).await?;
        self.ready().await?;
        Ok(since.elapsed())
    }

    /// Asks the process to end and waits for it.
    pub(super) async fn stop(mut self) -> Result<(), Broken> {
        let failed = |what: String| Broken::new(format!("the daemon didn't end well: {what}"));
        if let Some(pid) = self.child.id() {
            terminate(pid).map_err(|error| failed(error.to_string()))?;
        }
        match tokio::time::timeout(PATIENCE, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(failed(status.to_string())),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(format!("it still ran after {PATIENCE:?}"))),
        }
    }

    /// Waits for it to end by itself.
    pub(super) async fn ended(&mut self) -> Broken {
        match self.child.wait().await {
            Ok(status) => Broken::new(format!("the daemon ended by itself, {status}")),
            Err(error) => Broken::new(format!("the daemon can't be watched: {error}")),
        }
    }

    /// The URL of its store.
    pub(super) fn url(&self) -> String {
        format!("redis://{}", self.store)
    }

    /// The number of its process.
    pub(super) fn process(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// What a counter of its metrics stands at; zero where it isn't shown.
    pub(super) async fn counter(&self, name: &str) -> Result<u64, Broken> {
        let page = page(self.admin, "/metrics")
            .await
            .ok_or_else(|| Broken::new("the daemon's /metrics doesn't answer".to_owned()))?;
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or_default())
    }

    async fn ready(&mut self) -> Result<(), Broken> {
        let by = Instant::now() + PATIENCE;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(Broken::new(format!("the daemon ended at once, {status}")));
            }
            let page = page(self.admin, "/readyz").await.unwrap_or_default();
            if page.starts_with("HTTP/1.1 200") {
                return Ok(());
            }
            if Instant::now() >= by {
                let said = page.lines().last().unwrap_or_default();
                return Err(Broken::new(format!(
                    "the daemon isn't ready after {PATIENCE:?}: {said}"
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

async fn spawn(
    folder: &Path,
    store: SocketAddr,
    admin: SocketAddr,
) -> Result<(Child, Says), Broken> {
    let failed = |what: String| Broken::new(format!("the daemon can't be started: {what}"));
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join(LOG))
        .map_err(|error| failed(format!("{}: {error}", folder.join(LOG).display())))?;
    let mut child = program()?
        .args(["up", "--json", "--data-dir"])
        .arg(folder.join("data"))
        .env("CROSSWAY_EMBEDDED__LISTEN", store.to_string())
        .env("CROSSWAY_ADMIN__LISTEN", admin.to_string())
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let mut line = String::new();
    let said = child.stdout.take().map(BufReader::new);
    if let Some(mut said) = said {
        match tokio::time::timeout(PATIENCE, said.read_line(&mut line)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_) => return Err(failed(format!("it said nothing for {PATIENCE:?}"))),
        }
    }
    let says = serde_json::from_str(&line)
        .map_err(|_| failed(format!("it said {line:?}; its log may say why")))?;
    Ok((child, says))
}

/// The log's name within the folder.
pub(super) const LOG: &str = "daemon.log";

/// Asks a process of ours to end.
pub(super) fn terminate(pid: u32) -> Result<(), rustix::io::Errno> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    match pid {
        Some(pid) => rustix::process::kill_process(pid, rustix::process::Signal::TERM),
        None => Ok(()),
    }
}

async fn page(at: SocketAddr, path: &str) -> Option<String> {
    let ask = async {
        let mut stream = TcpStream::connect(at).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).await.ok()?;
        Some(page)
    };
    tokio::time::timeout(PAGE, ask).await.ok().flatten()
}
