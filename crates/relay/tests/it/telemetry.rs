//! What is counted for each pair.

use crossway_harness::eventually;
use serde_json::{Value, json};

use crate::world::{PATIENCE, World, field, keyspace, options};

on_both_stores!(relays_and_refusals_are_counted_once_across_restarts);

async fn stats(world: &World, command: &str, id: &str) -> Value {
    world
        .write("c", &[("t", "c"), ("i", id), ("c", command)])
        .await;
    let answer = world.answer("c", id).await;
    serde_json::from_str(&field(&answer, "r")).unwrap()
}

async fn relays_and_refusals_are_counted_once_across_restarts(world: World) {
    let mut world = world.start().await;
    for command in ["get", "get", "put"] {
        let id = world.send("a", "b", command).await;
        world.answer("a", &id).await;
    }
    let refused = world.send("a", "nobody", "get").await;
    assert_eq!(world.code("a", &refused).await, "RELAY.TARGET_NOT_FOUND");
    // Counted when the store has confirmed, which is after the sender can see it.
    let mut asked = 0;
    let unflushed = loop {
        asked += 1;
        let report = stats(&world, "relay_stats", &format!("s{asked}")).await;
        if report["total_relays"] == 4 || asked == 100 {
            break report;
        }
    };
    assert_eq!(unflushed["total_ok"], 3, "{unflushed}");
    assert_eq!(unflushed["total_err"], 1);
    world.stop().await;
    let hash = world.store.hash_all(&keyspace().telemetry()).await.unwrap();
    assert_eq!(hash.get("a|b|ok").map(String::as_str), Some("3"));

    world.start_with(options("one")).await;
    let id = world.send("a", "b", "put").await;
    world.answer("a", &id).await;
    world.stop().await;
    let read = async || {
        let hash = world.store.hash_all(&keyspace().telemetry()).await.unwrap();
        (hash.get("a|b|ok").map(String::as_str) == Some("4")).then_some(())
    };
    eventually(PATIENCE, "both runs to be added up", read).await;

    world.start_with(options("one")).await;
    let report = stats(&world, "topology_heatmap", "last").await;
    assert_eq!(report["pair_count"], 2, "{report}");
    let pair = &report["pairs"][0];
    assert_eq!(
        (&pair["source"], &pair["target"]),
        (&json!("a"), &json!("b"))
    );
    assert_eq!((&pair["count"], &pair["ok"]), (&json!(4), &json!(4)));
    assert_eq!(pair["commands"], json!({"get": 2, "put": 2}));
    assert!(pair["p99_latency_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(report["pairs"][1]["err"], 1);
    world.stop().await;
}
