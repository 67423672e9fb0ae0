//! The library `redis` for Python.

use std::process::Command;

use crossway_harness::RedisServer;

use crate::wire::Served;

/// What the library got of a store, line by line.
async fn got(url: String, protocol: &'static str) -> Vec<String> {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/libraries/redis_py.py"
    );
    let run = move || {
        Command::new("python3")
            .args([script, &url, protocol])
            .output()
    };
    let ran = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let text = String::from_utf8(ran.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_library_for_python_gets_what_it_gets_of_a_real_server() {
    let package = Command::new("python3")
        .args(["-c", "import redis"])
        .output();
    assert!(
        package.is_ok_and(|ran| ran.status.success()),
        "python3 with the package `redis` isn't here; `make tools` gets it"
    );
    for protocol in ["2", "3"] {
        let (real, ours) = (RedisServer::start().await, Served::plain().await);
        let (from_real, from_ours) =
            tokio::join!(got(real.url(), protocol), got(ours.url(), protocol));
        let last = from_real.last().map(String::as_str);
        assert_eq!(last, Some(r#"again [true, "x", 1]"#), "{from_real:#?}");
        assert_eq!(from_ours, from_real, "version {protocol}");
        ours.stop().await;
    }
}
