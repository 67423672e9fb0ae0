//! Rules decide, and only those who may change them do.

use crate::world::{World, field, keyspace, stream};

on_both_stores!(
    policy_is_asked_from_narrow_to_wide_and_says_why,
    a_rule_holds_for_the_next_message_after_it_was_acknowledged,
    an_unreadable_rule_denies,
    a_command_cannot_hide_behind_a_second_name,
    only_an_administrator_changes_rules,
    an_administrators_command_cannot_be_slipped_into_its_stream,
);

async fn policy_is_asked_from_narrow_to_wide_and_says_why(world: World) {
    let world = world.start().await;
    let rule = async |pair: &str, action: &str, commands: &str| {
        let body =
            format!(r#"{{"action":"{action}","reason":"because {pair}","commands":{commands}}}"#);
        world.rule(pair, &body).await;
    };
    rule("*:*", "deny", r#"["*"]"#).await;
    rule("a:b", "allow", r#"["get*"]"#).await;
    let id = world.send("a", "b", "get_status").await;
    world.arrival("b", &id).await;
    for (target, command) in [
        ("b", "delete"),
        ("c", "get_status"),
        ("{b}:gnode:unified:testing", "delete"),
    ] {
        let id = world.send("a", target, command).await;
        let answer = world.answer("a", &id).await;
        assert_eq!(field(&answer, "_ec"), "RELAY.DENIED");
        assert!(field(&answer, "e").contains("because *:*"), "{answer:?}");
    }
    let polled = world
        .store
        .get_many(&[format!("a:res:{}", world.send("a", "c", "x").await).into()])
        .await;
    assert!(polled.is_ok());
}

async fn a_rule_holds_for_the_next_message_after_it_was_acknowledged(world: World) {
    let world = world.start().await;
    let id = world.send("a", "b", "go").await;
    world.arrival("b", &id).await;
    for round in 0..60 {
        let action = if round % 2 == 0 { "deny" } else { "allow" };
        let body = format!(r#"{{"action":"{action}","reason":"","commands":["*"]}}"#);
        if round % 3 == 0 {
            let id = format!("set-{round}");
            let p = format!(r#"{{"source":"a","target":"b","policy":{body}}}"#);
            world.command("admin", &id, "relay_policy_set", &p).await;
            assert_eq!(field(&world.answer("admin", &id).await, "st"), "ok");
        } else {
            world.rule("a:b", &body).await;
        }
        let id = world.send("a", "b", "go").await;
        let answer = world.answer("a", &id).await;
        assert_eq!(
            field(&answer, "st") == "error",
            action == "deny",
            "round {round}: {answer:?}"
        );
    }
}

async fn an_unreadable_rule_denies(world: World) {
    let world = world.start().await;
    for body in ["", "{", r#"{"action":"maybe"}"#, "\u{fffd}"] {
        world.rule("a:b", body).await;
        let id = world.send("a", "b", "go").await;
        assert_eq!(world.code("a", &id).await, "RELAY.DENIED", "{body}");
    }
    let id = world.send("a", "c", "go").await;
    world.arrival("c", &id).await;
}

async fn a_command_cannot_hide_behind_a_second_name(world: World) {
    let world = world.start().await;
    let deny = r#"{"action":"deny","reason":"","commands":["delete"]}"#;
    world.rule("a:b", deny).await;
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

async fn only_an_administrator_changes_rules(world: World) {
    let world = world.start().await;
    let p = r#"{"source":"*","target":"*","policy":{"action":"deny"}}"#;
    for command in [
        "relay_policy_set",
        "relay_policy_list",
        "relay_policy_remove",
    ] {
        world.command("a", command, command, p).await;
        assert_eq!(world.code("a", command).await, "RELAY.FORBIDDEN");
    }
    world
        .command("a", "other", "deregister_service", r#"{"id":"b"}"#)
        .await;
    assert_eq!(world.code("a", "other").await, "RELAY.FORBIDDEN");
    let theirs = r#"{"id":"b","environments":["testing"]}"#;
    world.command("a", "over", "register_service", theirs).await;
    assert_eq!(world.code("a", "over").await, "RELAY.FORBIDDEN");
    assert!(
        world
            .store
            .hash_all(&keyspace().policy())
            .await
            .unwrap()
            .is_empty()
    );
    world.command("admin", "set", "relay_policy_set", p).await;
    assert_eq!(field(&world.answer("admin", "set").await, "st"), "ok");
    world
        .write(
            "admin",
            &[("t", "c"), ("i", "list"), ("c", "relay_policy_list")],
        )
        .await;
    assert!(field(&world.answer("admin", "list").await, "r").contains("*:*"));
    world
        .command(
            "admin",
            "remove",
            "relay_policy_remove",
            r#"{"source":"*","target":"*"}"#,
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
