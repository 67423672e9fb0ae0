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

    // Once the target is a stream, a retry makes the whole crossing.
    let _: () = redis::cmd("DEL")
        .arg("odd:gnode:unified:production")
        .query_async(&mut client)
        .await
        .unwrap();
    let retried = on(&server, &["dead", "retry", "--all"]);
    assert_eq!(
        (retried.status, &retried.object()["retried"]),
        (0, &json!([id]))
    );
    eventually(SOON, "the delivery", async || {
        let entries: Vec<(String, Vec<String>)> = redis::cmd("XRANGE")
            .arg(&["odd:gnode:unified:production", "-", "+"])
            .query_async(&mut client.clone())
            .await
            .unwrap();
        let (_, fields) = entries.into_iter().next()?;
        fields.contains(&"charge".to_owned()).then_some(())
    })
    .await;
    assert!(none(&["dead", "list"]));
    assert_eq!(on(&server, &["dead", "retry", id]).status, 1);
    assert_eq!(on(&server, &["dead", "drop", id]).status, 1);
    assert!(daemon.terminate().await, "{}", daemon.log());
}

#[tokio::test]
async fn letters_are_dropped_and_one_that_names_no_sites_stream_is_not_retried() {
    let server = RedisServer::start().await;
    let mut client = server.client().await;
    let id: String = redis::cmd("XADD")
        .arg(&[
            "gnode:gnode:relay:dead:staging",
            "*",
            "code",
            "RELAY.X",
            "reason",
            "r",
        ])
        .arg(&[
            "stream",
            "gnode:gnode:sites",
            "entry",
            "1-1",
            "attempts",
            "1",
            "at",
            "1",
        ])
        .arg(&["whole", "true", "f:t", "c"])
        .query_async(&mut client)
        .await
        .unwrap();
    let kept = on(&server, &["dead", "retry", &id]);
    assert_eq!(
        (kept.status, &kept.object()["kept"][0]["id"]),
        (1, &json!(id))
    );
    on(&server, &["dead", "drop"]).refused();
    let dropped = on(&server, &["dead", "drop", &id]);
    assert_eq!(
        (dropped.status, &dropped.object()["dropped"]),
        (0, &json!([id]))
    );
    assert_eq!(
        on(&server, &["dead", "list"]).object()["letters"],
        json!([])
    );
}
