//! Several commands in one.

use crossway_client::{Command, Failure};
use crossway_harness::{RedisServer, eventually};
use serde_json::{Value, json};

use crate::store::{SOON, add, connect, entries, of_type, stream};

async fn count(command: Command) -> Result<Value, Failure> {
    match command.name() {
        "double" => Ok(json!(command.params::<i64>()? * 2)),
        "id" => Ok(json!(command.id())),
        #[allow(clippy::panic, reason = "as asked")]
        "panic" => panic!("as asked"),
        other => Err(Failure::new("UNKNOWN_COMMAND", format!("no {other}"))),
    }
}

#[tokio::test]
async fn a_batch_is_answered_item_by_item_in_one_answer() {
    let server = RedisServer::start().await;
    let billing = connect(&server, "billing").await;
    let _serving = billing.serve(count).await.unwrap();
    let p = r#"[{"i":"x","c":"double","p":21},{"c":"none"},{"i":"y","command":"panic"},{"c":"double","p":"?"},{"c":"id"}]"#;
    let mut store = server.client().await;
    let batch = [("t", "bc"), ("i", "d1"), ("p", p), ("_rr", "shop")];
    add(&mut store, &stream("billing"), &batch).await;
    let answer = eventually(SOON, "the answer", async || {
        of_type(&server, "billing", "br").await.pop()
    })
    .await;
    assert_eq!(
        (&*answer["ri"], &*answer["st"], &*answer["ss"]),
        ("d1", "ok", "billing")
    );
    let answers: Value = serde_json::from_str(&answer["r"]).unwrap();
    assert_eq!(answers[0], json!({"ri": "x", "st": "ok", "r": 42}));
    let unknown = json!({"ri": null, "st": "error", "_ec": "UNKNOWN_COMMAND", "e": "no none"});
    assert_eq!(answers[1], unknown);
    assert_eq!(
        (&answers[2]["ri"], &answers[2]["_ec"]),
        (&json!("y"), &json!("INTERNAL"))
    );
    assert_eq!(answers[3]["_ec"], "INVALID_PARAMS");
    assert_eq!(answers[4]["r"], "d1.4");
    assert_eq!(answers.as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn a_batch_that_can_not_be_read_is_answered_and_the_sites_own_is_left_alone() {
    let server = RedisServer::start().await;
    let billing = connect(&server, "billing").await;
    let _serving = billing.serve(count).await.unwrap();
    let mut store = server.client().await;
    let own = [("t", "bc"), ("i", "own"), ("p", r#"[{"c":"ping"}]"#)];
    add(&mut store, &stream("billing"), &own).await;
    let faulty = [("t", "bc"), ("i", "d1"), ("p", "[5]"), ("_rr", "x")];
    add(&mut store, &stream("billing"), &faulty).await;
    let answer = eventually(SOON, "the answer", async || {
        of_type(&server, "billing", "br").await.pop()
    })
    .await;
    assert_eq!(
        (&*answer["ri"], &*answer["st"], &*answer["_ec"]),
        ("d1", "error", "INVALID_PARAMS")
    );
    let all = entries(&mut store, &stream("billing")).await;
    assert_eq!(all.len(), 3, "nothing was said to the other: {all:?}");
}
