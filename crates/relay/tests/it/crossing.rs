//! One crossing, step by step.

use crossway_core::entry::EntryId;
use crossway_harness::eventually;
use serde_json::{Value, json};

use crate::world::{PATIENCE, World, field, keyspace, options, site, stream, testing};

on_both_stores!(
    a_command_arrives_addressed_and_its_sender_is_told,
    a_reply_comes_home_once_under_the_senders_own_id,
    targets_are_sites_entities_and_stream_keys_in_both_spellings,
    a_site_may_address_itself,
    an_event_is_relayed_and_nobody_may_answer_it,
    a_batch_is_relayed_whole,
    environments_never_mix,
    a_restart_goes_on_where_it_stopped,
    a_target_that_is_no_stream_is_told_and_the_entry_kept,
);

async fn a_command_arrives_addressed_and_its_sender_is_told(world: World) {
    let world = world.start().await;
    let sent = [
        ("type", "c"),
        ("request_id", "mine"),
        ("cmd", "get"),
        ("params", "{\"n\": 12345678901234567890.10}"),
        ("node_id", "worker"),
        ("_rt", "b"),
        ("traceparent", "00-ab-cd-01"),
        ("extra", "kept"),
    ];
    world.write("a", &sent).await;
    let arrived = world.arrival("b", "mine").await;
    let acknowledgement = world.answer("a", "mine").await;
    let wanted = [
        ("t", "c"),
        ("c", "get"),
        ("p", "{\"n\": 12345678901234567890.10}"),
        ("ss", "a"),
        ("sn", "worker"),
        ("ds", "b"),
        ("dn", ""),
        ("_rr", &stream("a")),
        ("_oi", "mine"),
        ("tp", "00-ab-cd-01"),
        ("extra", "kept"),
    ];
    for (name, value) in wanted {
        assert_eq!(field(&arrived, name), value, "{name}");
    }
    assert!(arrived.fields.get(b"_rt").is_none());
    assert!(
        field(&arrived, "i").len() >= 32,
        "a delivery id has 128 bits"
    );
    let result: Value = serde_json::from_str(&field(&acknowledgement, "r")).unwrap();
    let relayed = json!({"relayed": true, "target": "b", "target_site": "b", "target_entity": "", "target_stream": stream("b"), "translated": false});
    assert_eq!(result, relayed);
    for (name, value) in [
        ("st", "ok"),
        ("ds", "a"),
        ("dn", "worker"),
        ("ss", "gnode"),
        ("sn", "one"),
    ] {
        assert_eq!(field(&acknowledgement, name), value, "{name}");
    }
}

async fn a_reply_comes_home_once_under_the_senders_own_id(world: World) {
    let world = world.start().await;
    let id = world.send("a", "b", "get").await;
    let delivery = field(&world.arrival("b", &id).await, "i");
    let reply = [
        ("t", "r"),
        ("ri", &*delivery),
        ("st", "ok"),
        ("r", "{\"v\":1}"),
        ("_rr", "c:gnode:unified:testing"),
        ("note", "x"),
    ];
    world.write("b", &reply).await;
    let carried = world
        .wait_for(&stream("a"), &[("ri", &id), ("r", "{\"v\":1}")])
        .await;
    assert_eq!(
        (
            field(&carried, "ss"),
            field(&carried, "ds"),
            field(&carried, "note")
        ),
        ("b".into(), "a".into(), "x".into())
    );
    assert!(carried.fields.get(b"_rr").is_none());
    let polled = eventually(PATIENCE, "the polled reply", || async {
        world
            .store
            .get_many(&[format!("a:res:{id}").into()])
            .await
            .unwrap()
            .remove(0)
    })
    .await;
    let polled: Value = serde_json::from_slice(&polled).unwrap();
    assert_eq!(
        (&polled["id"], &polled["status"], &polled["result"]),
        (&json!(id), &json!("ok"), &json!({"v": 1}))
    );
    world.write("b", &reply).await;
    world.settled("b").await;
    world.settled("a").await;
    let answers = world
        .entries(&stream("a"))
        .await
        .iter()
        .filter(|entry| field(entry, "ri") == id)
        .count();
    assert_eq!(answers, 2, "the acknowledgement and one reply");
}

async fn targets_are_sites_entities_and_stream_keys_in_both_spellings(world: World) {
    let world = world.start().await;
    world
        .store
        .hash_set(
            &keyspace().entities(),
            "clerk",
            r#"{"site":"b","metadata":{}}"#,
        )
        .await
        .unwrap();
    for (target, key) in [
        ("b", stream("b")),
        ("{b}", stream("b")),
        (&*stream("b"), stream("b")),
        (
            "{b}:gnode:unified:testing",
            "{b}:gnode:unified:testing".into(),
        ),
    ] {
        let id = world.send("a", target, "get").await;
        let arrived = world.wait_for(&key, &[("_oi", &id)]).await;
        assert_eq!(field(&arrived, "ds"), "b", "{target}");
        world
            .write_to(
                &key,
                &[
                    ("t", "r"),
                    ("ri", &field(&arrived, "i")),
                    ("st", "ok"),
                    ("r", "\"seen\""),
                ],
            )
            .await;
        world
            .wait_for(&stream("a"), &[("ri", &id), ("r", "\"seen\"")])
            .await;
    }
    let id = world.send("a", "clerk", "get").await;
    let arrived = world.arrival("b", &id).await;
    assert_eq!(
        (field(&arrived, "ds"), field(&arrived, "dn")),
        ("b".into(), "clerk".into())
    );
}

async fn a_site_may_address_itself(world: World) {
    let world = world.start().await;
    let id = world.send("a", "a", "get").await;
    let delivery = field(&world.arrival("a", &id).await, "i");
    world.reply("a", &delivery, "7").await;
    world
        .wait_for(&stream("a"), &[("ri", &id), ("r", "7")])
        .await;
}

async fn an_event_is_relayed_and_nobody_may_answer_it(world: World) {
    let world = world.start().await;
    world
        .write(
            "a",
            &[("t", "e"), ("i", "news"), ("c", "happened"), ("_rt", "b")],
        )
        .await;
    let arrived = world
        .wait_for(&stream("b"), &[("t", "e"), ("_oi", "news")])
        .await;
    world.reply("b", &field(&arrived, "i"), "1").await;
    world.settled("b").await;
    world.settled("a").await;
    assert!(!world.has("a", "r", "1").await);
}

async fn a_batch_is_relayed_whole(world: World) {
    let world = world.start().await;
    world
        .rule(
            "a:b",
            r#"{"action":"deny","reason":"no","commands":["delete"]}"#,
        )
        .await;
    let p = r#"[{"c":"read","i":"1"},{"command":"list"}]"#;
    world
        .write(
            "a",
            &[
                ("t", "bc"),
                ("i", "many"),
                ("bi", "B"),
                ("tc", "2"),
                ("p", p),
                ("_rt", "b"),
            ],
        )
        .await;
    let arrived = world
        .wait_for(
            &stream("b"),
            &[
                ("t", "bc"),
                ("_oi", "many"),
                ("p", p),
                ("bi", "B"),
                ("tc", "2"),
            ],
        )
        .await;
    world
        .write(
            "b",
            &[("t", "br"), ("ri", &field(&arrived, "i")), ("r", "[1,2]")],
        )
        .await;
    world
        .wait_for(&stream("a"), &[("t", "br"), ("ri", "many"), ("r", "[1,2]")])
        .await;
    let sly = r#"[{"c":"read"},{"command":"delete"}]"#;
    world
        .write(
            "a",
            &[
                ("t", "bc"),
                ("i", "sly"),
                ("c", "read"),
                ("p", sly),
                ("_rt", "b"),
            ],
        )
        .await;
    assert_eq!(world.code("a", "sly").await, "RELAY.DENIED");
}

async fn environments_never_mix(world: World) {
    let world = world.start().await;
    let send = async |target: &str, id: &str| {
        world
            .write_to(
                "a:gnode:unified:staging",
                &[("t", "c"), ("i", id), ("c", "get"), ("_rt", target)],
            )
            .await;
    };
    send("b", "same").await;
    world
        .wait_for("b:gnode:unified:staging", &[("_oi", "same")])
        .await;
    for (target, id) in [
        ("b:gnode:unified:testing", "key"),
        ("{b}:gnode:unified:testing", "tagged"),
        ("b:gnode:unified:moon", "moon"),
        ("c", "absent"),
    ] {
        send(target, id).await;
        let refusal = world
            .wait_for("a:gnode:unified:staging", &[("ri", id), ("st", "error")])
            .await;
        assert_eq!(field(&refusal, "_ec"), "RELAY.ENVIRONMENT", "{target}");
    }
    assert!(world.entries(&stream("b")).await.is_empty());
}

async fn a_restart_goes_on_where_it_stopped(world: World) {
    let mut world = world.start().await;
    let first = world.send("a", "b", "go").await;
    let delivery = field(&world.arrival("b", &first).await, "i");
    world.stop().await;
    world.reply("b", &delivery, "\"while it was away\"").await;
    let second = world.send("a", "b", "go").await;
    world.start_with(options("one")).await;
    world
        .wait_for(
            &stream("a"),
            &[("ri", &first), ("r", "\"while it was away\"")],
        )
        .await;
    world.arrival("b", &second).await;
    let copies = world
        .entries(&stream("b"))
        .await
        .iter()
        .filter(|entry| field(entry, "_oi") == first)
        .count();
    assert_eq!(copies, 1);
}

async fn a_target_that_is_no_stream_is_told_and_the_entry_kept(world: World) {
    let world = world.start().await;
    let own = keyspace().unified(&site("hole"), &testing());
    world
        .store
        .hash_set(&own.key, "not", "a stream")
        .await
        .unwrap();
    world
        .store
        .hash_set(
            &keyspace().sites(),
            "hole",
            r#"{"environments":["testing"]}"#,
        )
        .await
        .unwrap();
    let id = world.send("a", "hole", "go").await;
    assert_eq!(world.code("a", &id).await, "RELAY.UNDELIVERABLE");
    let dead = world
        .wait_for(
            &keyspace().dead(&testing()),
            &[("code", "RELAY.UNDELIVERABLE")],
        )
        .await;
    assert_eq!(
        (
            field(&dead, "f:i"),
            field(&dead, "f:_rt"),
            field(&dead, "stream")
        ),
        (id, "hole".into(), stream("a"))
    );
    let next = world.send("a", "b", "go").await;
    world.arrival("b", &next).await;
    assert!(
        world
            .store
            .range(&stream("a"), EntryId::ZERO, 10)
            .await
            .is_ok()
    );
}
