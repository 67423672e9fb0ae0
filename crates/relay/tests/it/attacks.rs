//! No site can write into another's stream, by whatever it puts into its own.

use std::time::Duration;

use crossway_harness::eventually;

use crate::world::{PATIENCE, World, field, keyspace, options, stream};

on_both_stores!(
    a_forged_source_is_overwritten_and_counted,
    a_forged_reply_address_leads_nowhere,
    a_made_up_delivery_id_is_answered_by_nobody,
    a_replayed_reply_is_dropped,
    a_reply_after_its_lifetime_is_dropped,
    a_reply_from_a_third_site_is_dropped_and_the_true_one_still_counts,
    two_senders_with_one_request_id_get_their_own_answers,
    an_answer_with_a_target_is_still_only_an_answer,
    a_daemon_answer_is_not_taken_for_its_sites_reply,
    only_an_administrator_changes_rules,
    an_administrators_command_cannot_be_slipped_into_its_stream,
    a_site_cannot_register_over_another,
    a_site_cannot_take_the_daemons_name,
    a_command_cannot_hide_behind_a_second_name,
);

async fn a_forged_source_is_overwritten_and_counted(world: World) {
    let world = world.start().await;
    let deny = r#"{"action":"deny","reason":"","commands":["*"]}"#;
    world
        .store
        .hash_set(&keyspace().policy(), "a:c", deny)
        .await
        .unwrap();
    world
        .write(
            "a",
            &[
                ("t", "c"),
                ("i", "1"),
                ("c", "go"),
                ("_rt", "b"),
                ("ss", "c"),
                ("service_id", "c"),
            ],
        )
        .await;
    let arrived = world.arrival("b", "1").await;
    assert_eq!(field(&arrived, "ss"), "a");
    assert!(arrived.fields.get(b"service_id").is_none());
    world
        .write(
            "a",
            &[
                ("t", "c"),
                ("i", "2"),
                ("c", "go"),
                ("_rt", "c"),
                ("ss", "b"),
            ],
        )
        .await;
    assert_eq!(world.code("a", "2").await, "RELAY.DENIED");
    world.counts("crossway_relay_forged_sources_total", 2).await;
}

async fn a_forged_reply_address_leads_nowhere(world: World) {
    let world = world.start().await;
    let forged = [
        ("t", "c"),
        ("i", "1"),
        ("c", "go"),
        ("_rt", "b"),
        ("_rr", "c:gnode:unified:testing"),
        ("_oi", "x"),
    ];
    world.write("a", &forged).await;
    let arrived = world.arrival("b", "1").await;
    assert_eq!(field(&arrived, "_rr"), stream("a"));
    let answer = [
        ("t", "r"),
        ("ri", &*field(&arrived, "i")),
        ("r", "1"),
        ("_rr", "c:gnode:unified:testing"),
    ];
    world.write("b", &answer).await;
    world
        .wait_for(&stream("a"), &[("ri", "1"), ("r", "1")])
        .await;
    assert!(world.entries(&stream("c")).await.is_empty());
}

async fn a_made_up_delivery_id_is_answered_by_nobody(world: World) {
    let world = world.start().await;
    let made_up = [
        ("t", "r"),
        ("ri", "d.00000000000000000000000000000000"),
        ("r", "1"),
        ("_rr", "b:gnode:unified:testing"),
    ];
    world.write("a", &made_up).await;
    world.settled("a").await;
    assert!(world.entries(&stream("b")).await.is_empty());
    world
        .counts("crossway_relay_entries_total{outcome=\"reply_unknown\"}", 1)
        .await;
}

async fn a_replayed_reply_is_dropped(world: World) {
    let world = world.start().await;
    let id = world.send("a", "b", "go").await;
    let delivery = field(&world.arrival("b", &id).await, "i");
    for answer in ["1", "2", "3"] {
        world
            .write("b", &[("t", "r"), ("ri", &delivery), ("r", answer)])
            .await;
    }
    world.settled("b").await;
    world.settled("a").await;
    let carried = world
        .entries(&stream("a"))
        .await
        .into_iter()
        .filter(|entry| field(entry, "ri") == id && !field(entry, "_cr").is_empty());
    assert_eq!(
        carried.map(|entry| field(&entry, "r")).collect::<Vec<_>>(),
        ["1"]
    );
}

async fn a_reply_after_its_lifetime_is_dropped(mut world: World) {
    let mut short = options("one");
    short.reply_ttl = Duration::from_millis(50);
    world.start_with(short).await;
    for site in ["a", "b"] {
        world
            .store
            .hash_set(&keyspace().sites(), site, r#"{"environments":["testing"]}"#)
            .await
            .unwrap();
    }
    let id = world.send("a", "b", "go").await;
    let delivery = field(&world.arrival("b", &id).await, "i");
    let record = keyspace().awaited(&delivery);
    eventually(PATIENCE, "the record to expire", || async {
        world
            .store
            .get_many(std::slice::from_ref(&record))
            .await
            .unwrap()
            .remove(0)
            .is_none()
            .then_some(())
    })
    .await;
    world
        .write("b", &[("t", "r"), ("ri", &delivery), ("r", "\"late\"")])
        .await;
    world.settled("b").await;
    world.settled("a").await;
    assert!(
        !world
            .entries(&stream("a"))
            .await
            .iter()
            .any(|entry| field(entry, "r") == "\"late\"")
    );
}

async fn a_reply_from_a_third_site_is_dropped_and_the_true_one_still_counts(world: World) {
    let world = world.start().await;
    let id = world.send("a", "b", "go").await;
    let delivery = field(&world.arrival("b", &id).await, "i");
    world
        .write("c", &[("t", "r"), ("ri", &delivery), ("r", "\"false\"")])
        .await;
    world.settled("c").await;
    // Nor may it come from another environment of the right site.
    world
        .write_to(
            "b:gnode:unified:staging",
            &[("t", "r"), ("ri", &delivery), ("r", "\"staged\"")],
        )
        .await;
    world
        .write_to(
            "b:gnode:unified:staging",
            &[("t", "c"), ("i", "p"), ("c", "ping")],
        )
        .await;
    world
        .wait_for("b:gnode:unified:staging", &[("ri", "p")])
        .await;
    world
        .write("b", &[("t", "r"), ("ri", &delivery), ("r", "\"true\"")])
        .await;
    world
        .wait_for(&stream("a"), &[("ri", &id), ("r", "\"true\"")])
        .await;
    let false_ones = world
        .entries(&stream("a"))
        .await
        .into_iter()
        .filter(|entry| ["\"false\"", "\"staged\""].contains(&&*field(entry, "r")));
    assert_eq!(false_ones.count(), 0);
}

async fn two_senders_with_one_request_id_get_their_own_answers(world: World) {
    let world = world.start().await;
    for sender in ["a", "c"] {
        world
            .write(
                sender,
                &[("t", "c"), ("i", "same"), ("c", "go"), ("_rt", "b")],
            )
            .await;
    }
    for sender in ["a", "c"] {
        let arrived = world
            .wait_for(&stream("b"), &[("_oi", "same"), ("ss", sender)])
            .await;
        world
            .write(
                "b",
                &[
                    ("t", "r"),
                    ("ri", &field(&arrived, "i")),
                    ("r", &format!("\"for {sender}\"")),
                ],
            )
            .await;
    }
    for sender in ["a", "c"] {
        world
            .wait_for(
                &stream(sender),
                &[("ri", "same"), ("r", &format!("\"for {sender}\""))],
            )
            .await;
        let other = if sender == "a" {
            "\"for c\""
        } else {
            "\"for a\""
        };
        assert!(
            !world
                .entries(&stream(sender))
                .await
                .iter()
                .any(|entry| field(entry, "r") == other)
        );
    }
}

async fn an_answer_with_a_target_is_still_only_an_answer(world: World) {
    let world = world.start().await;
    world
        .write(
            "a",
            &[("t", "r"), ("ri", "whatever"), ("r", "1"), ("_rt", "b")],
        )
        .await;
    world
        .write(
            "a",
            &[("t", "br"), ("ri", "whatever"), ("r", "1"), ("_rt", "b")],
        )
        .await;
    world.settled("a").await;
    assert!(world.entries(&stream("b")).await.is_empty());
}

async fn a_daemon_answer_is_not_taken_for_its_sites_reply(world: World) {
    let world = world.start().await;
    let id = world.send("a", "b", "go").await;
    let delivery = field(&world.arrival("b", &id).await, "i");
    // The target asks a third site under the very id that it is to answer.
    world
        .write(
            "b",
            &[("t", "c"), ("i", &delivery), ("c", "ask"), ("_rt", "c")],
        )
        .await;
    let asked = field(&world.arrival("c", &delivery).await, "i");
    world
        .write("c", &[("t", "r"), ("ri", &asked), ("r", "\"inner\"")])
        .await;
    world
        .wait_for(&stream("b"), &[("ri", &delivery), ("r", "\"inner\"")])
        .await;
    world.settled("b").await;
    world
        .write("b", &[("t", "r"), ("ri", &delivery), ("r", "\"outer\"")])
        .await;
    world
        .wait_for(&stream("a"), &[("ri", &id), ("r", "\"outer\"")])
        .await;
    let carried = world
        .entries(&stream("a"))
        .await
        .into_iter()
        .filter(|entry| !field(entry, "_cr").is_empty())
        .count();
    assert_eq!(carried, 1);
}

async fn only_an_administrator_changes_rules(world: World) {
    let world = world.start().await;
    let p = r#"{"source":"*","target":"*","policy":{"action":"deny"}}"#;
    for command in [
        "relay_policy_set",
        "relay_policy_list",
        "relay_policy_remove",
    ] {
        world
            .write("a", &[("t", "c"), ("i", command), ("c", command), ("p", p)])
            .await;
        assert_eq!(world.code("a", command).await, "RELAY.FORBIDDEN");
    }
    world
        .write(
            "a",
            &[
                ("t", "c"),
                ("i", "other"),
                ("c", "deregister_service"),
                ("p", r#"{"id":"b"}"#),
            ],
        )
        .await;
    assert_eq!(world.code("a", "other").await, "RELAY.FORBIDDEN");
    let theirs = r#"{"id":"b","environments":["testing"]}"#;
    world
        .write(
            "a",
            &[
                ("t", "c"),
                ("i", "over"),
                ("c", "register_service"),
                ("p", theirs),
            ],
        )
        .await;
    assert_eq!(world.code("a", "over").await, "RELAY.FORBIDDEN");
    assert!(
        world
            .store
            .hash_all(&keyspace().policy())
            .await
            .unwrap()
            .is_empty()
    );
    world
        .write(
            "admin",
            &[
                ("t", "c"),
                ("i", "set"),
                ("c", "relay_policy_set"),
                ("p", p),
            ],
        )
        .await;
    assert_eq!(field(&world.answer("admin", "set").await, "st"), "ok");
    world
        .write(
            "admin",
            &[("t", "c"), ("i", "list"), ("c", "relay_policy_list")],
        )
        .await;
    assert!(field(&world.answer("admin", "list").await, "r").contains("*:*"));
    world
        .write(
            "admin",
            &[
                ("t", "c"),
                ("i", "remove"),
                ("c", "relay_policy_remove"),
                ("p", r#"{"source":"*","target":"*"}"#),
            ],
        )
        .await;
    assert!(field(&world.answer("admin", "remove").await, "r").contains("\"removed\":true"));
    let id = world.send("a", "b", "go").await;
    world.arrival("b", &id).await;
}

async fn an_administrators_command_cannot_be_slipped_into_its_stream(world: World) {
    let world = world.start().await;
    let p = r#"{"source":"*","target":"*","policy":{"action":"deny"}}"#;
    world
        .write(
            "a",
            &[
                ("t", "c"),
                ("i", "sly"),
                ("c", "relay_policy_set"),
                ("p", p),
                ("_rt", "admin"),
            ],
        )
        .await;
    world.arrival("admin", "sly").await;
    let batch = format!(r#"[{{"c":"relay_policy_set","p":{p}}}]"#);
    world
        .write(
            "a",
            &[
                ("t", "bc"),
                ("i", "sly-batch"),
                ("p", &batch),
                ("_rt", "admin"),
            ],
        )
        .await;
    world
        .wait_for(&stream("admin"), &[("_oi", "sly-batch")])
        .await;
    world.settled("admin").await;
    assert!(
        world
            .store
            .hash_all(&keyspace().policy())
            .await
            .unwrap()
            .is_empty()
    );
}

async fn a_site_cannot_register_over_another(world: World) {
    let world = world.start().await;
    let before = world.store.hash_all(&keyspace().sites()).await.unwrap();
    let register = async |id: &str, p: &str| {
        world
            .write_to(
                &keyspace().register(),
                &[("t", "c"), ("i", id), ("c", "register_service"), ("p", p)],
            )
            .await;
    };
    register(
        "1",
        r#"{"id":"b","environments":["staging"],"metadata":{"native_format":"resp3"}}"#,
    )
    .await;
    register(
        "2",
        r#"{"id":"new","environments":["testing"],"entities":["b"]}"#,
    )
    .await;
    register("3", r#"{"id":"*","environments":["testing"]}"#).await;
    register("4", r#"{"id":"last","environments":["testing"]}"#).await;
    world.wait_for(&stream("last"), &[("ri", "4")]).await;
    let after = world.store.hash_all(&keyspace().sites()).await.unwrap();
    assert_eq!(after.len(), before.len() + 1, "{after:?}");
    assert_eq!(after["b"], before["b"]);
    for key in [stream("b"), "b:gnode:unified:staging".into()] {
        assert!(
            world.entries(&key).await.is_empty(),
            "nothing is written to the one whose name was tried"
        );
    }
    // An entity can't take a site's messages, nor a site an entity's.
    world
        .write(
            "a",
            &[
                ("t", "c"),
                ("i", "e"),
                ("c", "register_service"),
                ("p", r#"{"id":"a","entities":["c"]}"#),
            ],
        )
        .await;
    assert_eq!(world.code("a", "e").await, "RELAY.NAME_TAKEN");
    world
        .write(
            "a",
            &[
                ("t", "c"),
                ("i", "f"),
                ("c", "register_service"),
                ("p", r#"{"id":"a","entities":["desk"]}"#),
            ],
        )
        .await;
    assert_eq!(field(&world.answer("a", "f").await, "st"), "ok");
    register("5", r#"{"id":"desk","environments":["testing"]}"#).await;
    register("6", r#"{"id":"very-last","environments":["testing"]}"#).await;
    world.wait_for(&stream("very-last"), &[("ri", "6")]).await;
    let id = world.send("b", "desk", "go").await;
    world.arrival("a", &id).await;
}

async fn a_site_cannot_take_the_daemons_name(world: World) {
    let world = world.start().await;
    let id = world.send("a", "gnode:gnode:unified:testing", "go").await;
    assert_eq!(world.code("a", &id).await, "RELAY.TARGET_NOT_FOUND");
    let p = r#"{"id":"gnode","environments":["testing"]}"#;
    world
        .write(
            "admin",
            &[
                ("t", "c"),
                ("i", "own"),
                ("c", "register_service"),
                ("p", p),
            ],
        )
        .await;
    assert_eq!(world.code("admin", "own").await, "RELAY.BAD_PARAMETERS");
}

async fn a_command_cannot_hide_behind_a_second_name(world: World) {
    let world = world.start().await;
    let deny = r#"{"action":"deny","reason":"","commands":["delete"]}"#;
    world
        .store
        .hash_set(&keyspace().policy(), "a:b", deny)
        .await
        .unwrap();
    let sly = [
        ("t", "c"),
        ("i", "1"),
        ("c", "read"),
        ("cmd", "delete"),
        ("command", "delete"),
        ("c", "delete"),
        ("_rt", "b"),
    ];
    world.write("a", &sly).await;
    let arrived = world.arrival("b", "1").await;
    let names: Vec<_> = arrived
        .fields
        .iter()
        .filter(|(_, value)| *value == "delete")
        .collect();
    assert!(names.is_empty(), "{arrived:?}");
    assert_eq!(field(&arrived, "c"), "read");
}
