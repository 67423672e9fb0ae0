//! A service, the daemon and the command line together.

use std::process::Command;

use crossway_client::{Client, Failure};
use crossway_harness::store::{PATIENCE, add, connect, entries, unified_stream};
use crossway_harness::{Daemon, RedisServer, eventually};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::program::{Ran, finish};

const PROGRAM: &str = env!("CARGO_BIN_EXE_crossway");
/// Digits that no number of a machine has, in an order that no sorted map has.
const EXACT: &str = r#"{"z":12345678901234567890123,"a":1.10}"#;

fn ran(mut command: Command, arguments: &[&str]) -> impl Future<Output = Ran> + use<> {
    command.args(arguments).arg("--json");
    async {
        tokio::task::spawn_blocking(move || finish(command, ""))
            .await
            .unwrap()
    }
}

/// Asks, forbids, asks again, allows, asks again.
async fn converse(daemon: &Daemon, url: &str) {
    let billing = Client::connect(url, "billing", "production").await.unwrap();
    let serving = billing
        .serve(|command: crossway_client::Command| async move {
            match command.name() {
                "double" => {
                    let is = command.params::<i64>()? * 2;
                    Ok(to_raw_value(&json!({"is": is, "for": command.source_site()})).unwrap())
                }
                "exact" => Ok(RawValue::from_string(EXACT.to_owned()).unwrap()),
                _ => Err(Failure::new("UNKNOWN_COMMAND", "only double")),
            }
        })
        .await
        .unwrap();
    let send = |command: &'static str, params: &'static str| {
        ran(
            daemon.command(),
            &[
                "send",
                "billing",
                command,
                params,
                "--from",
                "shop",
                "--timeout",
                "20s",
            ],
        )
    };

    let answered = send("double", "21").await;
    assert_eq!(answered.status, 0, "{answered:?}");
    assert_eq!(
        answered.object()["result"],
        json!({"is": 42, "for": "shop"})
    );

    let exact = send("exact", "0").await;
    assert!(
        exact.out.contains(&format!(r#""result":{EXACT}"#)),
        "{exact:?}"
    );

    let failed = send("halve", "21").await;
    assert_eq!(
        (failed.status, failed.object()["code"].as_str()),
        (1, Some("UNKNOWN_COMMAND")),
        "{failed:?}"
    );

    let set = ran(
        daemon.command(),
        &[
            "policy", "set", "shop", "billing", "deny", "--reason", "closed",
        ],
    )
    .await;
    assert_eq!(set.status, 0, "{set:?}");
    let denied = send("double", "21").await;
    assert_eq!(
        (denied.status, denied.object()["code"].as_str()),
        (1, Some("RELAY.DENIED")),
        "{denied:?}"
    );
    assert!(
        denied.object()["message"]
            .as_str()
            .unwrap()
            .contains("closed"),
        "{denied:?}"
    );

    let removed = ran(daemon.command(), &["policy", "remove", "shop", "billing"]).await;
    assert_eq!(removed.status, 0, "{removed:?}");
    assert_eq!(send("double", "4").await.status, 0);

    let sites = ran(daemon.command(), &["sites"]).await.object();
    let known: Vec<&String> = sites["sites"].as_object().unwrap().keys().collect();
    assert_eq!(known, ["billing", "shop"]);
    let nobody: Value = ran(daemon.command(), &["send", "nobody", "x", "--from", "shop"])
        .await
        .object();
    assert_eq!(nobody["code"], "RELAY.TARGET_NOT_FOUND");
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_over_the_embedded_store() {
    let mut daemon = Daemon::up(PROGRAM, "embedded").await;
    converse(&daemon, &daemon.embedded_url()).await;
    assert!(daemon.terminate().await, "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_over_an_embedded_store_with_a_password() {
    let mut daemon = Daemon::new(PROGRAM, "embedded");
    daemon.set("CROSSWAY_EMBEDDED__PASSWORD", "p@ss:w/ord");
    daemon.start_ready().await;
    let url = daemon
        .embedded_url()
        .replace("redis://", "redis://:p%40ss%3Aw%2Ford@");
    converse(&daemon, &url).await;
    assert!(!daemon.log().contains("p@ss"), "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_over_a_server() {
    let server = RedisServer::start().await;
    let mut daemon = Daemon::up(PROGRAM, &server.url()).await;
    converse(&daemon, &server.url()).await;
    assert!(daemon.terminate().await, "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_goes_there_and_its_answers_come_home_in_one() {
    let daemon = Daemon::up(PROGRAM, "embedded").await;
    let billing = Client::connect(&daemon.embedded_url(), "billing", "production")
        .await
        .unwrap();
    let serving = billing
        .serve(|command: crossway_client::Command| async move { command.params::<i64>() })
        .await
        .unwrap();
    let mut store = connect(&daemon.embedded_url()).await;
    let p = r#"[{"i":"x","c":"echo","p":1},{"c":"echo","p":2}]"#;
    let batch = [("t", "bc"), ("i", "many"), ("p", p), ("_rt", "billing")];
    add(&mut store, &unified_stream("shop"), &batch).await;
    let home = eventually(PATIENCE, "the answers to come home", async || {
        let all = entries(&mut store.clone(), &unified_stream("shop")).await;
        let mut fields = all.into_iter().map(|(_, fields)| fields);
        fields.find(|fields| fields["t"] == "br" && fields["ri"] == "many")
    })
    .await;
    let answers: Value = serde_json::from_str(&home["r"]).unwrap();
    let expected = json!([{"ri": "x", "st": "ok", "r": 1}, {"ri": null, "st": "ok", "r": 2}]);
    assert_eq!((&*home["ss"], answers), ("billing", expected));
    serving.stop().await;
}
