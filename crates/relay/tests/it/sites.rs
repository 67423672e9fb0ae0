//! Sites come, are found and leave, and none takes the name of another.

use serde_json::{Value, json};

use crate::world::{World, field, keyspace, stream};

on_both_stores!(
    what_was_written_before_the_site_was_known_is_relayed,
    a_new_site_is_a_target_at_once,
    an_explicit_key_makes_its_site_known,
    sites_register_and_leave,
    a_site_cannot_register_over_another,
    a_site_cannot_take_the_daemons_name,
);

async fn what_was_written_before_the_site_was_known_is_relayed(world: World) {
    let world = world.start().await;
    for index in 0..20 {
        let id = format!("early-{index}");
        world
            .write("late", &[("t", "c"), ("i", &id), ("c", "go"), ("_rt", "b")])
            .await;
    }
    let p = r#"{"id":"late","environments":["testing"]}"#;
    world
        .write_to(
            &keyspace().register(),
            &[
                ("t", "c"),
                ("i", "hello"),
                ("c", "register_service"),
                ("p", p),
            ],
        )
        .await;
    for index in 0..20 {
        world.arrival("b", &format!("early-{index}")).await;
    }
}

async fn a_new_site_is_a_target_at_once(world: World) {
    let world = world.start().await;
    for index in 0..30 {
        let name = format!("new-{index}");
        let p =
            format!(r#"{{"id":"{name}","environments":["testing"],"entities":["part-{index}"]}}"#);
        let id = format!("reg-{index}");
        world
            .write_to(
                &keyspace().register(),
                &[("t", "c"), ("i", &id), ("c", "register_service"), ("p", &p)],
            )
            .await;
        assert_eq!(field(&world.answer(&name, &id).await, "st"), "ok");
        let id = world.send("a", &name, "go").await;
        world.arrival(&name, &id).await;
        let id = world.send("a", &format!("part-{index}"), "go").await;
        world.arrival(&name, &id).await;
    }
}

async fn an_explicit_key_makes_its_site_known(world: World) {
    let world = world.start().await;
    let id = world
        .send("a", "stranger:gnode:unified:testing", "go")
        .await;
    let delivery = field(&world.arrival("stranger", &id).await, "i");
    world.reply("stranger", &delivery, "\"hi\"").await;
    world
        .wait_for(&stream("a"), &[("ri", &id), ("r", "\"hi\"")])
        .await;
}

async fn sites_register_and_leave(world: World) {
    let world = world.start().await;
    let own = r#"{"id":"a","environments":["testing"],"metadata":{"native_format":"resp3"},"entities":[{"id":"desk"}]}"#;
    world.command("a", "own", "register_service", own).await;
    assert_eq!(field(&world.answer("a", "own").await, "st"), "ok");
    world
        .write("b", &[("t", "c"), ("i", "list"), ("c", "list_services")])
        .await;
    let list: Value = serde_json::from_str(&field(&world.answer("b", "list").await, "r")).unwrap();
    let a = list["services"]
        .as_array()
        .unwrap()
        .iter()
        .find(|service| service["id"] == "a")
        .unwrap();
    assert_eq!(
        (&a["metadata"]["native_format"], &a["entities"]),
        (&json!("resp3"), &json!(["desk"]))
    );
    world
        .write(
            "a",
            &[("t", "c"), ("i", "gone"), ("c", "deregister_service")],
        )
        .await;
    assert_eq!(field(&world.answer("a", "gone").await, "st"), "ok");
    for target in ["a", "desk"] {
        let id = world.send("b", target, "go").await;
        assert_eq!(
            world.code("b", &id).await,
            "RELAY.TARGET_NOT_FOUND",
            "{target}"
        );
    }
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
        .command(
            "a",
            "e",
            "register_service",
            r#"{"id":"a","entities":["c"]}"#,
        )
        .await;
    assert_eq!(world.code("a", "e").await, "RELAY.NAME_TAKEN");
    world
        .command(
            "a",
            "f",
            "register_service",
            r#"{"id":"a","entities":["desk"]}"#,
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
    world.command("admin", "own", "register_service", p).await;
    assert_eq!(world.code("admin", "own").await, "RELAY.BAD_PARAMETERS");
}
