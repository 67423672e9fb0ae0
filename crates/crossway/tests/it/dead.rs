//! What could not be delivered, as an operator sees it.

use crossway_harness::{Daemon, RedisServer, eventually};
use serde_json::{Value, json};

use crate::program::{Ran, run};
use crate::store::SOON;

const PROGRAM: &str = env!("CARGO_BIN_EXE_crossway");

fn on(server: &RedisServer, arguments: &[&str]) -> Ran {
    let url = server.url();
    let mut all = arguments.to_vec();
    all.extend(["--url", &url, "--json"]);
    run(&all)
}

#[tokio::test]
async fn a_letter_is_listed_with_its_reason_and_shown_with_its_fields() {
    let server = RedisServer::start().await;
    let mut client = server.client().await;
    let _: () = redis::cmd("SET")
        .arg(&["odd:gnode:unified:production", "no stream"])
        .query_async(&mut client)
        .await
        .unwrap();
    let mut daemon = Daemon::new(PROGRAM, &server.url());
    daemon.set("CROSSWAY_RELAY__DISCOVERY", "scan");
    daemon.start_ready().await;
    let entry: String = redis::cmd("XADD")
        .arg(&["shop:gnode:unified:production", "*", "t", "c", "i", "1"])
        .arg(&[
            "c",
            "charge",
            "p",
            "{}",
            "_rt",
            "odd:gnode:unified:production",
        ])
        .query_async(&mut client)
        .await
        .unwrap();
    let letter = eventually(SOON, "a dead letter", async || {
        let listed = on(&server, &["dead", "list"]).object();
        listed["letters"].as_array().unwrap().first().cloned()
    })
    .await;
    for (name, value) in [
        ("environment", json!("production")),
        ("code", json!("RELAY.UNDELIVERABLE")),
        ("stream", json!("shop:gnode:unified:production")),
        ("entry", json!(entry)),
        ("command", json!("charge")),
        ("whole", json!(true)),
    ] {
        assert_eq!(letter[name], value, "{letter}");
    }
    assert!(letter["attempts"].as_u64().unwrap() >= 1, "{letter}");
    assert!(
        letter["reason"].as_str().unwrap().contains("WRONGTYPE"),
        "{letter}"
    );

    let id = letter["id"].as_str().unwrap();
    let shown = on(&server, &["dead", "show", id]).object();
    let fields = shown["letter"]["fields"].as_array().unwrap();
    assert!(fields.contains(&json!(["c", "charge"])), "{shown}");
    let none = |arguments: &[&str]| on(&server, arguments).object()["letters"] == json!([]);
    assert!(none(&["dead", "list", "--reason", "RELAY.TOO_LARGE"]));
    assert!(none(&["dead", "list", "--env", "testing"]));
    let absent = on(&server, &["dead", "show", "1-1"]);
    assert_eq!(
        (absent.status, &absent.object()["letter"]),
        (1, &Value::Null)
    );
    on(&server, &["dead", "show", "first"]).refused();
    on(&server, &["dead", "list", "--env", "nowhere"]).refused();
    assert!(daemon.terminate().await, "{}", daemon.log());
}
