//! What the daemon itself is asked.

use serde_json::{Value, json};

use crate::world::{World, field, stream};

on_both_stores!(
    the_daemon_answers_its_own_commands_and_leaves_the_others_alone,
    a_batch_of_daemon_commands_is_answered_in_one,
    a_faulty_batch_is_answered_if_a_daemon_command_can_be_read_in_it,
);

async fn the_daemon_answers_its_own_commands_and_leaves_the_others_alone(world: World) {
    let world = world.start().await;
    world
        .write("a", &[("t", "c"), ("i", "1"), ("c", "ping")])
        .await;
    let pong: Value = serde_json::from_str(&field(&world.answer("a", "1").await, "r")).unwrap();
    assert_eq!(pong["pong"], true);
    world
        .write(
            "a",
            &[("t", "c"), ("i", "2"), ("c", "something_of_its_own")],
        )
        .await;
    world
        .command("a", "3", "register_service", "{not json")
        .await;
    assert_eq!(world.code("a", "3").await, "RELAY.BAD_PARAMETERS");
    world.settled("a").await;
    assert!(!world.has("a", "ri", "2").await);
}

async fn a_batch_of_daemon_commands_is_answered_in_one(world: World) {
    let world = world.start().await;
    let p = r#"[{"c":"ping","i":"x"},{"c":"relay_policy_list","i":"y"},{"c":"unheard_of"}]"#;
    world
        .write("a", &[("t", "bc"), ("i", "many"), ("p", p)])
        .await;
    let answer = world
        .wait_for(&stream("a"), &[("t", "br"), ("ri", "many")])
        .await;
    let answers: Value = serde_json::from_str(&field(&answer, "r")).unwrap();
    assert_eq!(
        (&answers[0]["ri"], &answers[0]["st"]),
        (&json!("x"), &json!("ok"))
    );
    assert_eq!(
        (&answers[1]["st"], &answers[1]["_ec"]),
        (&json!("error"), &json!("RELAY.FORBIDDEN"))
    );
    assert_eq!(answers[2]["st"], "error");
}

async fn a_faulty_batch_is_answered_if_a_daemon_command_can_be_read_in_it(world: World) {
    let world = world.start().await;
    let long = format!("[{}{{}}]", r#"{"c":"ping"},"#.repeat(1000));
    for (id, p) in [
        ("1", r#"[{"c":"ping"},5]"#),
        ("2", r#"[{"c":"ping","command":"other"}]"#),
        ("3", &long),
    ] {
        world.write("a", &[("t", "bc"), ("i", id), ("p", p)]).await;
        assert_eq!(world.code("a", id).await, "RELAY.BAD_PARAMETERS", "{p}");
    }
    for (id, p) in [
        ("own-1", r#"[{"c":"ping"}"#),
        ("own-2", r#"[{"c":"mine"},5]"#),
        ("own-3", "a format of its own"),
    ] {
        world.write("a", &[("t", "bc"), ("i", id), ("p", p)]).await;
        world.settled("a").await;
        assert!(!world.has("a", "ri", id).await, "{p}");
    }
}
