//! The daemon as a process: started, killed, paused and started again.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{eventually, port};

/// A daemon with a folder of its own, which outlives its process.
pub struct Daemon {
    program: PathBuf,
    folder: TempDir,
    settings: Vec<(String, String)>,
    admin: u16,
    store: u16,
    process: Option<Child>,
}

impl Daemon {
    /// A daemon that isn't running yet. `program` is its binary, `store` the URL of its store or
    /// `embedded`.
    #[must_use]
    pub fn new(program: &str, store: &str) -> Daemon {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (admin, embedded) = (port::free(), port::free());
        let mut daemon = Daemon {
            program: program.into(),
            folder,
            settings: Vec::new(),
            admin,
            store: embedded,
            process: None,
        };
        daemon.set("CROSSWAY_RELAY__STORE", store);
        daemon.set("CROSSWAY_ADMIN__LISTEN", &format!("127.0.0.1:{admin}"));
        daemon.set(
            "CROSSWAY_EMBEDDED__LISTEN",
            &format!("127.0.0.1:{embedded}"),
        );
        daemon
    }

    /// A daemon that is ready; what it takes is said at [`Daemon::new`].
    pub async fn up(program: &str, store: &str) -> Daemon {
        let mut daemon = Daemon::new(program, store);
        daemon.start_ready().await;
        daemon
    }

    /// Sets an environment variable for the next start.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.retain(|(known, _)| known != name);
        self.settings.push((name.to_owned(), value.to_owned()));
    }

    /// The daemon's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file that a daemon reads when it is there.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.folder.path().join("crossway.toml")
    }

    /// The URL of the embedded store.
    #[must_use]
    pub fn embedded_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.store)
    }

    /// A command of the program with this daemon's settings, to be run beside it.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.folder.path());
        command
    }

    /// Starts the process and doesn't wait for it.
    pub fn start(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file())
            .expect("the log can be opened");
        let mut command = self.command();
        command.arg("up");
        if self.config_file().exists() {
            command.arg("--config").arg(self.config_file());
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.process = Some(command.spawn().expect("the daemon can be started"));
    }

    /// Starts the process and waits until it is ready.
    pub async fn start_ready(&mut self) {
        self.start();
        self.ready().await;
    }

    /// Waits until `/readyz` says yes.
    pub async fn ready(&self) {
        let what = format!("the daemon to be ready; its log:\n{}", self.log());
        eventually(Duration::from_secs(30), &what, || async {
            self.page("/readyz")
                .await
                .filter(|page| page.starts_with("HTTP/1.1 200"))
                .map(|_| ())
        })
        .await;
    }

    /// Ends the process at once, as `kill -9` does.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it can be killed");
            process.wait().expect("it ends");
        }
    }

    /// Sends the running process a signal.
    pub fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("it runs");
        let pid = i32::try_from(process.id())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process number");
        kill_process(pid, signal).expect("it can be signalled");
    }

    /// The number of the running process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    /// Asks the process to end and waits for it; gives whether it ended well.
    pub async fn terminate(&mut self) -> bool {
        self.signal(Signal::TERM);
        let mut process = self.process.take().expect("it runs");
        let status = eventually(Duration::from_secs(30), "the daemon to end", || {
            let status = process.try_wait().expect("its state can be asked for");
            async move { status }
        })
        .await;
        status.success()
    }

    /// A page of the admin listener, head and body; `None` where it doesn't answer.
    pub async fn page(&self, path: &str) -> Option<String> {
        let ask = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.admin)).await.ok()?;
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.ok()?;
            let mut page = String::new();
            stream.read_to_string(&mut page).await.ok()?;
            Some(page)
        };
        tokio::time::timeout(Duration::from_secs(5), ask)
            .await
            .ok()
            .flatten()
    }

    /// What it has logged, over all its starts.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("daemon.log")
    }

    /// An empty file in the daemon's folder, for a test's own use.
    #[must_use]
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        drop(File::create(&path).expect("it can be made"));
        std::fs::write(&path, content).expect("it can be written");
        path
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // It may be paused, or gone already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
