//! The example in Python is a service as good as any.

use std::time::Duration;

use crossway_client::{CallError, Client};
use crossway_harness::{Daemon, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::speaker::{Language, Service};

const PROGRAM: &str = env!("CARGO_BIN_EXE_crossway");
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_in_python_answers_fails_and_ends_when_asked() {
    if Language::at_hand(&[Language::Python]).is_empty() {
        return;
    }
    let daemon = Daemon::up(PROGRAM, "embedded").await;
    let url = daemon.embedded_url();
    let mut service = Service::start(Language::Python, &url, "one");
    let shop = Client::connect(&url, "shop", "production").await.unwrap();

    let sum = shop
        .call("python", "sum", &[1, 2, 3], PATIENCE)
        .await
        .unwrap();
    assert_eq!(sum.json::<Value>().unwrap(), json!({"sum": 6}));
    assert_eq!(sum.site(), "python");

    let text = json!({"line": "one\r\ntwo", "deep": [[["ü"]]]});
    let echo = shop.call("python", "echo", &text, PATIENCE).await.unwrap();
    assert_eq!(echo.json::<Value>().unwrap(), text);

    let unknown = shop
        .call("python", "nope", &(), PATIENCE)
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), Some("UNKNOWN_COMMAND"), "{unknown}");
    let faulty = shop
        .call("python", "sum", &"x", PATIENCE)
        .await
        .unwrap_err();
    assert!(matches!(faulty, CallError::Failed { .. }), "{faulty}");
    assert_eq!(faulty.code(), Some("INVALID_PARAMS"), "{faulty}");

    // Nested beyond what Python follows: not an error that the service expects.
    let deep = RawValue::from_string("[".repeat(200_000) + &"]".repeat(200_000)).unwrap();
    let failed = shop.call("python", "echo", &deep, PATIENCE).await;
    assert!(
        matches!(failed, Err(CallError::Failed { .. })),
        "{failed:?}"
    );
    let infinite = RawValue::from_string("1e999".to_owned()).unwrap();
    let failed = shop.call("python", "echo", &infinite, PATIENCE).await;
    assert!(
        matches!(failed, Err(CallError::Failed { .. })),
        "{failed:?}"
    );
    let still = shop.call("python", "sum", &[1], PATIENCE).await.unwrap();
    assert_eq!(still.json::<Value>().unwrap(), json!({"sum": 1}));

    kill_process(Pid::from_child(&service.0), Signal::TERM).unwrap();
    let status = eventually(PATIENCE, "the service ends", || {
        let status = service.0.try_wait().unwrap();
        async move { status }
    })
    .await;
    assert!(status.success(), "{status}");
}
