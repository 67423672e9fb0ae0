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
);

async fn a_forged_source_is_overwritten_and_counted(world: World) {
    let world = world.start().await;
    let deny = r#"{"action":"deny","reason":"","commands":["*"]}"#;
    world.rule("a:c", deny).await;
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
        world.reply("b", &delivery, answer).await;
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
    world.reply("b", &delivery, "\"late\"").await;
    world.settled("b").await;
    world.settled("a").await;
    assert!(!world.has("a", "r", "\"late\"").await);
}

async fn a_reply_from_a_third_site_is_dropped_and_the_true_one_still_counts(world: World) {
    let world = world.start().await;
    let id = world.send("a", "b", "go").await;
    let delivery = field(&world.arrival("b", &id).await, "i");
    world.reply("c", &delivery, "\"false\"").await;
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
    world.reply("b", &delivery, "\"true\"").await;
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
            .reply("b", &field(&arrived, "i"), &format!("\"for {sender}\""))
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
        assert!(!world.has(sender, "r", other).await);
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
    world.reply("c", &asked, "\"inner\"").await;
    world
        .wait_for(&stream("b"), &[("ri", &delivery), ("r", "\"inner\"")])
        .await;
    world.settled("b").await;
    world.reply("b", &delivery, "\"outer\"").await;
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
