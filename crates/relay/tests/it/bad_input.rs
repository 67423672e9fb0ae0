//! Whatever is written into a stream, the daemon answers where it can, loses nothing, and goes on.

use crossway_core::entry::Fields;

use crate::world::{PATIENCE, World, field, keyspace, stream, testing};
use crossway_harness::eventually;

on_both_stores!(
    entries_that_say_nothing_are_passed_over,
    a_relay_without_a_meaningful_type_is_refused,
    a_relay_without_a_command_is_refused,
    bytes_that_are_not_text_are_refused_in_any_field_but_the_parameters,
    a_value_of_a_hundred_megabytes_is_refused_and_kept,
    ten_thousand_fields_are_refused_and_kept,
    an_oversize_answer_is_told_to_who_waits,
    targets_that_are_no_addresses_are_not_found,
    parameters_that_are_not_json_pass_as_they_are,
    a_registry_that_cannot_be_read_stops_nobody,
    an_entry_without_a_request_id_is_answered_by_its_own,
);

async fn append(world: &World, site: &str, pairs: Vec<(Vec<u8>, Vec<u8>)>) -> String {
    let fields: Fields = pairs.into_iter().collect();
    world
        .store
        .append(&stream(site), fields)
        .await
        .unwrap()
        .to_string()
}

fn pairs(fields: &[(&str, &[u8])]) -> Vec<(Vec<u8>, Vec<u8>)> {
    fields
        .iter()
        .map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec()))
        .collect()
}

async fn goes_on(world: &World) {
    let id = world.send("a", "b", "still_there").await;
    world.arrival("b", &id).await;
}

async fn entries_that_say_nothing_are_passed_over(world: World) {
    let world = world.start().await;
    world.write("a", &[("hello", "world")]).await;
    world.write("a", &[("t", "?"), ("i", "1")]).await;
    world
        .write("a", &[("t", ""), ("type", "c"), ("c", "ping")])
        .await;
    append(&world, "a", pairs(&[("\u{1}", b"\xff\xfe"), ("", b"")])).await;
    world.settled("a").await;
    world
        .counts("crossway_relay_entries_total{outcome=\"meaningless\"}", 4)
        .await;
    assert_eq!(
        world.entries(&stream("a")).await.len(),
        6,
        "nothing but the ping and its answer was added"
    );
    goes_on(&world).await;
}

async fn a_relay_without_a_meaningful_type_is_refused(world: World) {
    let world = world.start().await;
    for (id, kind) in [("1", "?"), ("2", "command"), ("3", "")] {
        world
            .write("a", &[("t", kind), ("i", id), ("c", "go"), ("_rt", "b")])
            .await;
        assert_eq!(world.code("a", id).await, "RELAY.MALFORMED");
    }
    world
        .write("a", &[("i", "none"), ("c", "go"), ("_rt", "b")])
        .await;
    assert_eq!(world.code("a", "none").await, "RELAY.MALFORMED");
    assert!(world.entries(&stream("b")).await.is_empty());
}

async fn a_relay_without_a_command_is_refused(world: World) {
    let world = world.start().await;
    world
        .write("a", &[("t", "c"), ("i", "1"), ("_rt", "b")])
        .await;
    assert_eq!(world.code("a", "1").await, "RELAY.MALFORMED");
    world
        .write("a", &[("t", "bc"), ("i", "2"), ("_rt", "b"), ("p", "[{]")])
        .await;
    assert_eq!(world.code("a", "2").await, "RELAY.BAD_PARAMETERS");
    goes_on(&world).await;
}

async fn bytes_that_are_not_text_are_refused_in_any_field_but_the_parameters(world: World) {
    let world = world.start().await;
    for name in ["c", "_rt", "ss", "extra", "tp"] {
        let id = format!("bad-{name}");
        let mut fields = pairs(&[
            ("t", b"c"),
            ("i", id.as_bytes()),
            ("c", b"go"),
            ("_rt", b"b"),
        ]);
        fields.retain(|(known, _)| known != name.as_bytes());
        fields.push((name.as_bytes().to_vec(), b"x\xff".to_vec()));
        append(&world, "a", fields).await;
        assert_eq!(world.code("a", &id).await, "RELAY.MALFORMED", "{name}");
    }
    let entry = append(
        &world,
        "a",
        pairs(&[("t", b"c"), ("i", b"\xff"), ("c", b"go"), ("_rt", b"b")]),
    )
    .await;
    assert_eq!(
        world.code("a", &entry).await,
        "RELAY.MALFORMED",
        "answered by the entry's id"
    );
    assert!(world.entries(&stream("b")).await.is_empty());
}

async fn a_value_of_a_hundred_megabytes_is_refused_and_kept(world: World) {
    let world = world.start().await;
    let large = vec![b'x'; 100 * 1024 * 1024];
    let entry = append(
        &world,
        "a",
        pairs(&[
            ("t", b"c"),
            ("i", b"1"),
            ("c", b"go"),
            ("p", &large),
            ("_rt", b"b"),
        ]),
    )
    .await;
    assert_eq!(world.code("a", "1").await, "RELAY.TOO_LARGE");
    let dead = world
        .wait_for(&keyspace().dead(&testing()), &[("code", "RELAY.TOO_LARGE")])
        .await;
    assert_eq!(
        (
            field(&dead, "entry"),
            field(&dead, "stream"),
            field(&dead, "whole")
        ),
        (entry, stream("a"), "false".into())
    );
    assert_eq!(
        (field(&dead, "f:i"), field(&dead, "f:_rt")),
        ("1".into(), "b".into())
    );
    goes_on(&world).await;
}

async fn ten_thousand_fields_are_refused_and_kept(world: World) {
    let world = world.start().await;
    let many = || (0..10_000).map(|index| (format!("f{index}").into_bytes(), b"v".to_vec()));
    let first = pairs(&[("t", b"c"), ("i", b"first"), ("c", b"go"), ("_rt", b"b")])
        .into_iter()
        .chain(many())
        .collect();
    append(&world, "a", first).await;
    assert_eq!(world.code("a", "first").await, "RELAY.TOO_LARGE");
    let last = many()
        .chain(pairs(&[
            ("t", b"c"),
            ("i", b"last"),
            ("c", b"go"),
            ("_rt", b"b"),
        ]))
        .collect();
    let entry = append(&world, "a", last).await;
    world
        .wait_for(
            &keyspace().dead(&testing()),
            &[("code", "RELAY.TOO_LARGE"), ("entry", &entry)],
        )
        .await;
    goes_on(&world).await;
}

async fn an_oversize_answer_is_told_to_who_waits(world: World) {
    let world = world.start().await;
    let id = world.send("a", "b", "go").await;
    let delivery = field(&world.arrival("b", &id).await, "i");
    let large = vec![b'x'; 20 * 1024 * 1024];
    append(
        &world,
        "b",
        pairs(&[("t", b"r"), ("ri", delivery.as_bytes()), ("r", &large)]),
    )
    .await;
    world
        .wait_for(&stream("a"), &[("ri", &id), ("_ec", "RELAY.TOO_LARGE")])
        .await;
}

async fn targets_that_are_no_addresses_are_not_found(world: World) {
    let world = world.start().await;
    let long = "x".repeat(10 * 1024);
    for target in [
        "",
        "*",
        "nobody",
        "b:c",
        "{b",
        "b}",
        "{{b}}",
        "b c",
        "é",
        "b:gnode:",
        ":gnode:unified:testing",
        "b:gnode:unified:testing:x",
        "*:gnode:unified:testing",
        "cap:ledger",
        "node:did:key:z6Mk",
        "matrix://acme.com/a.accepts.b",
        &long,
    ] {
        let id = world.send("a", target, "go").await;
        let answer = world.answer("a", &id).await;
        assert_eq!(field(&answer, "_ec"), "RELAY.TARGET_NOT_FOUND", "{target}");
        assert!(
            field(&answer, "e").len() < 1000,
            "a long target isn't repeated whole"
        );
    }
    goes_on(&world).await;
}

async fn parameters_that_are_not_json_pass_as_they_are(world: World) {
    let world = world.start().await;
    world
        .write(
            "a",
            &[
                ("t", "c"),
                ("i", "1"),
                ("c", "go"),
                ("p", "{\"broken\": [1,}"),
                ("_rt", "b"),
            ],
        )
        .await;
    let arrived = world.arrival("b", "1").await;
    assert_eq!(field(&arrived, "p"), "{\"broken\": [1,}");
    world.reply("b", &field(&arrived, "i"), "not json").await;
    world
        .wait_for(&stream("a"), &[("ri", "1"), ("r", "not json")])
        .await;
    let polled = eventually(PATIENCE, "the polled reply", || async {
        world
            .store
            .get_many(&["a:res:1".into()])
            .await
            .unwrap()
            .remove(0)
    })
    .await;
    let polled: serde_json::Value = serde_json::from_slice(&polled).unwrap();
    assert_eq!(polled["result"], "not json");
}

async fn a_registry_that_cannot_be_read_stops_nobody(world: World) {
    let world = world.start().await;
    for (name, body) in [
        ("*", "{}"),
        ("x:y", "{}"),
        ("broken", "{"),
        ("gnode", "{}"),
        ("odd", r#"{"environments":["moon"]}"#),
    ] {
        world
            .store
            .hash_set(&keyspace().sites(), name, body)
            .await
            .unwrap();
    }
    world
        .store
        .hash_set(&keyspace().entities(), "lost", "[]")
        .await
        .unwrap();
    world
        .store
        .hash_set(&keyspace().entities(), "orphan", r#"{"site":"nobody"}"#)
        .await
        .unwrap();
    for target in ["broken", "lost", "orphan"] {
        let id = world.send("a", target, "go").await;
        assert_eq!(
            world.code("a", &id).await,
            "RELAY.TARGET_NOT_FOUND",
            "{target}"
        );
    }
    goes_on(&world).await;
}

async fn an_entry_without_a_request_id_is_answered_by_its_own(world: World) {
    let world = world.start().await;
    let entry = world
        .write("a", &[("t", "c"), ("c", "go"), ("_rt", "b")])
        .await
        .to_string();
    let arrived = world.wait_for(&stream("b"), &[("c", "go")]).await;
    assert!(arrived.fields.get(b"_oi").is_none());
    world.answer("a", &entry).await;
    world.reply("b", &field(&arrived, "i"), "5").await;
    world
        .wait_for(&stream("a"), &[("ri", &entry), ("r", "5")])
        .await;
}
