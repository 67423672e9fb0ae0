//! The service in Python, where this machine can run it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::Broken;
use super::daemon::{own, terminate};

/// The example, as it lies in the repository.
const SERVICE: &str = include_str!("../../../../../examples/python/echo_service.py");
/// How long Python may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running `echo_service.py`.
pub(super) struct Python {
    child: Child,
    // It would be told of a broken pipe when it prints.
    _says: BufReader<ChildStdout>,
}

/// Why there is no service in Python.
pub(super) const MISSING: &str = "left out: it needs python3 with the package `redis`, which `make tools` or `python3 -m pip install redis` gets";

impl Python {
    /// Starts it as the site `echo` on the store at `url`; `None` where Python or its package
    /// isn't at hand.
    pub(super) async fn start(folder: &Path, url: &str) -> Result<Option<Python>, Broken> {
        if !has_package().await {
            return Ok(None);
        }
        let failed =
            |what: String| Broken::new(format!("the service in Python doesn't start: {what}"));
        let file = folder.join("echo_service.py");
        std::fs::write(&file, SERVICE)
            .map_err(|error| failed(format!("{}: {error}", file.display())))?;
        let mut command = Command::new("python3");
        own(&mut command);
        let mut child = command
            .arg(&file)
            .args(["--url", url, "--site", "echo"])
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let Some(says) = child.stdout.take() else {
            return Err(failed("it has no output".to_owned()));
        };
        let (mut says, mut line) = (BufReader::new(says), String::new());
        match tokio::time::timeout(PATIENCE, says.read_line(&mut line)).await {
            Ok(Ok(read)) if read > 0 => Ok(Some(Python { child, _says: says })),
            Ok(_) => Err(failed("it ended at once".to_owned())),
            Err(_) => Err(failed(format!("it said nothing for {PATIENCE:?}"))),
        }
    }

    /// Ends it, by force where asking isn't enough.
    pub(super) async fn stop(mut self) {
        if let Some(Ok(())) = self.child.id().map(terminate)
            && tokio::time::timeout(PATIENCE, self.child.wait())
                .await
                .is_ok()
        {
            return;
        }
        let _ = self.child.kill().await;
    }
}

async fn has_package() -> bool {
    let mut command = Command::new("python3");
    own(&mut command);
    let asked = command
        .args(["-c", "import redis"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    matches!(tokio::time::timeout(PATIENCE, asked).await, Ok(Ok(status)) if status.success())
}
