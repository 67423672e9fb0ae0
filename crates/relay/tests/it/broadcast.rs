//! What a site tells everybody.

use crate::world::{World, field, keyspace};

on_both_stores!(
    an_event_reaches_the_broadcast_stream_once,
    who_may_not_broadcast_is_refused_and_nothing_is_written,
);

const BROADCAST: [(&str, &str); 4] = [
    ("t", "c"),
    ("i", "one"),
    ("c", "broadcast"),
    ("p", r#"{"topic":"prices.changed","payload":{"n": 1.10}}"#),
];

async fn an_event_reaches_the_broadcast_stream_once(world: World) {
    let mut world = world.start().await;
    world.write("a", &BROADCAST).await;
    let answer = world.answer("a", "one").await;
    assert_eq!(field(&answer, "st"), "ok", "{answer:?}");
    let events = world.entries("a:gnode:broadcast").await;
    assert_eq!(events.len(), 1);
    for (name, value) in [
        ("t", "e"),
        ("c", "prices.changed"),
        ("p", "{\"n\": 1.10}"),
        ("ss", "a"),
    ] {
        assert_eq!(field(&events[0], name), value, "{name}");
    }
    world.stop().await;
}

async fn who_may_not_broadcast_is_refused_and_nothing_is_written(world: World) {
    let rule = r#"{"action":"deny","reason":"quiet","commands":["broadcast"]}"#;
    let key = keyspace().policy();
    world.store.hash_set(&key, "a:*", rule).await.unwrap();
    let mut world = world.start().await;
    world.write("a", &BROADCAST).await;
    assert_eq!(world.code("a", "one").await, "RELAY.DENIED");
    assert!(world.entries("a:gnode:broadcast").await.is_empty());
    world.stop().await;
}
