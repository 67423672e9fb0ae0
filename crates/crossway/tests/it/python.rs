//! The example in Python is a service as good as any.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crossway_client::{CallError, Client};
use crossway_harness::{Daemon, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::value::RawValue;
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_crossway");
const PATIENCE: Duration = Duration::from_secs(20);

/// `echo_service.py`, ended with the value.
struct Service(Child);

impl Service {
    /// Starts it, and waits until it says that it answers.
    fn start(url: &str) -> Service {
        let package = Command::new("python3")
            .args(["-c", "import redis"])
            .output();
        assert!(
            package.is_ok_and(|ran| ran.status.success()),
            "python3 with the package `redis` isn't here; `make tools` gets it"
        );
        let file =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/python/echo_service.py");
        let mut child = Command::new("python3")
            .arg(file)
            .args(["--url", url, "--site", "echo"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.starts_with("echo answers on "), "{line}");
        Service(child)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_in_python_answers_fails_and_ends_when_asked() {
    let mut daemon = Daemon::new(PROGRAM, "embedded");
    daemon.start_ready().await;
    let url = daemon.embedded_url();
    let mut service = Service::start(&url);
    let shop = Client::connect(&url, "shop", "production").await.unwrap();

    let sum = shop
        .call("echo", "sum", &[1, 2, 3], PATIENCE)
        .await
        .unwrap();
    assert_eq!(sum.json::<Value>().unwrap(), json!({"sum": 6}));
    assert_eq!(sum.site(), "echo");

    let text = json!({"line": "one\r\ntwo", "deep": [[["ü"]]]});
    let echo = shop.call("echo", "echo", &text, PATIENCE).await.unwrap();
    assert_eq!(echo.json::<Value>().unwrap(), text);

    let unknown = shop.call("echo", "nope", &(), PATIENCE).await.unwrap_err();
    assert_eq!(unknown.code(), Some("UNKNOWN_COMMAND"), "{unknown}");
    let faulty = shop.call("echo", "sum", &"x", PATIENCE).await.unwrap_err();
    assert!(matches!(faulty, CallError::Failed { .. }), "{faulty}");
    assert_eq!(faulty.code(), Some("INVALID_PARAMS"), "{faulty}");

    // Nested beyond what Python follows: not an error that the service expects.
    let deep = RawValue::from_string("[".repeat(200_000) + &"]".repeat(200_000)).unwrap();
    let failed = shop.call("echo", "echo", &deep, PATIENCE).await;
    assert!(
        matches!(failed, Err(CallError::Failed { .. })),
        "{failed:?}"
    );
    let infinite = RawValue::from_string("1e999".to_owned()).unwrap();
    let failed = shop.call("echo", "echo", &infinite, PATIENCE).await;
    assert!(
        matches!(failed, Err(CallError::Failed { .. })),
        "{failed:?}"
    );
    let still = shop.call("echo", "sum", &[1], PATIENCE).await.unwrap();
    assert_eq!(still.json::<Value>().unwrap(), json!({"sum": 1}));

    kill_process(Pid::from_child(&service.0), Signal::TERM).unwrap();
    let status = eventually(PATIENCE, "the service ends", || {
        let status = service.0.try_wait().unwrap();
        async move { status }
    })
    .await;
    assert!(status.success(), "{status}");
}
