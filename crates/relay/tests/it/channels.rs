//! Direct channels: who may open, see and close them, and when they go by themselves.

use crossway_harness::eventually;
use serde_json::Value;

use crate::world::{PATIENCE, World, field, keyspace, options, stream};

on_both_stores! {
    a_channel_has_a_stream_and_a_group_for_each_of_its_sites,
    an_entity_stands_for_its_site,
    a_channel_is_opened_only_where_a_message_could_go,
    parameters_that_make_no_sense_are_refused,
    only_a_party_or_an_administrator_closes_a_channel,
    a_site_sees_its_own_channels_and_an_administrator_all,
    a_site_opens_no_more_channels_than_it_may,
    a_channel_goes_when_nobody_uses_it_and_no_sooner,
    a_batch_opens_as_many_channels_as_it_says,
}

/// Gives a command for the daemon and waits for its result.
async fn ask(world: &World, site: &str, id: &str, command: &str, params: &str) -> Value {
    world.command(site, id, command, params).await;
    let answer = world.answer(site, id).await;
    assert_eq!(field(&answer, "st"), "ok", "{answer:?}");
    serde_json::from_str(&field(&answer, "r")).unwrap()
}

/// Gives a command for the daemon and waits for the code of its refusal.
async fn refused(world: &World, site: &str, id: &str, command: &str, params: &str) -> String {
    world.command(site, id, command, params).await;
    world.code(site, id).await
}

async fn open(world: &World, site: &str, id: &str, params: &str) -> String {
    let opened = ask(world, site, id, "channel_open", params).await;
    opened["channel_id"].as_str().unwrap().to_owned()
}

fn naming(channel: &str) -> String {
    serde_json::json!({ "channel_id": channel }).to_string()
}

async fn index(world: &World) -> Vec<String> {
    let index = keyspace().direct_index();
    let mut ids = world.store.set_members(&index).await.unwrap();
    ids.sort();
    ids
}

/// Whether the keys of a channel are there: its stream, its metadata, its place in the index.
async fn traces(world: &World, channel: &str) -> [bool; 3] {
    let keys = [keyspace().direct(channel), keyspace().direct_meta(channel)];
    let there = world.store.exist(&keys).await.unwrap();
    [
        there[0],
        there[1],
        index(world).await.iter().any(|id| id == channel),
    ]
}

async fn a_channel_has_a_stream_and_a_group_for_each_of_its_sites(world: World) {
    let world = world.start().await;
    let params = r#"{"target_site":"b","metadata":{"why":"bulk"}}"#;
    let opened = ask(&world, "a", "1", "channel_open", params).await;
    let id = opened["channel_id"].as_str().unwrap();
    let digits = id.strip_prefix("dc_").unwrap();
    assert!(
        digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{id}"
    );
    assert_eq!(opened["stream_key"], format!("gnode:gnode:direct:{id}"));
    assert_eq!(opened["mode"], "persistent");
    assert_eq!(opened["groups"], serde_json::json!({"a": "a", "b": "b"}));
    let key = keyspace().direct(id);
    for site in ["a", "b"] {
        assert!(
            !world.store.make_group(&key, site).await.unwrap(),
            "{site} has a group"
        );
    }
    let told = ask(&world, "b", "1", "channel_info", &naming(id)).await;
    assert_eq!(told, opened);
    assert_eq!(told["metadata"]["why"], "bulk");
    let other = open(&world, "a", "2", r#"{"target_site":"b"}"#).await;
    assert_ne!(other, id);
}

async fn an_entity_stands_for_its_site(world: World) {
    let world = world.start().await;
    ask(
        &world,
        "b",
        "1",
        "register_service",
        r#"{"id":"b","environments":["testing"],"entities":["part"]}"#,
    )
    .await;
    let opened = ask(
        &world,
        "a",
        "1",
        "channel_open",
        r#"{"target_site":"part"}"#,
    )
    .await;
    assert_eq!(
        (&opened["target_site"], &opened["target_entity"]),
        (&"b".into(), &"part".into())
    );
}

async fn a_channel_is_opened_only_where_a_message_could_go(world: World) {
    world
        .rule(
            "a:b",
            r#"{"action":"deny","reason":"no","commands":["channel_open"]}"#,
        )
        .await;
    let world = world.start().await;
    let cases = [
        (r#"{"target_site":"b"}"#, "RELAY.DENIED"),
        (r#"{"target_site":"nobody"}"#, "RELAY.TARGET_NOT_FOUND"),
        (
            r#"{"target_site":"gnode:gnode:unified:testing"}"#,
            "RELAY.TARGET_NOT_FOUND",
        ),
        (
            r#"{"target_site":"b:gnode:unified:staging"}"#,
            "RELAY.ENVIRONMENT",
        ),
        (r#"{"target_site":"a"}"#, "RELAY.BAD_PARAMETERS"),
    ];
    for (number, (params, code)) in cases.into_iter().enumerate() {
        let id = number.to_string();
        assert_eq!(
            refused(&world, "a", &id, "channel_open", params).await,
            code,
            "{params}"
        );
    }
    assert!(index(&world).await.is_empty());
    // The rule is about one direction.
    open(&world, "b", "1", r#"{"target_site":"a"}"#).await;
}

async fn parameters_that_make_no_sense_are_refused(world: World) {
    let world = world.start().await;
    let large = format!(
        r#"{{"target_site":"b","metadata":{{"x":"{}"}}}}"#,
        "y".repeat(5000)
    );
    let cases = [
        "{}",
        r#"{"target_site":"b","mode":"eternal"}"#,
        r#"{"target_site":"b","mode":"temporary","ttl_seconds":0}"#,
        r#"{"target_site":"b","mode":"temporary","ttl_seconds":99999999999}"#,
        r#"{"target_site":"b","metadata":[]}"#,
        &large,
    ];
    for (number, params) in cases.into_iter().enumerate() {
        let code = refused(&world, "a", &number.to_string(), "channel_open", params).await;
        assert_eq!(code, "RELAY.BAD_PARAMETERS", "{params}");
    }
    for (id, command) in [("x", "channel_close"), ("y", "channel_info")] {
        let code = refused(&world, "a", id, command, r#"{"channel_id":"index"}"#).await;
        assert_eq!(code, "RELAY.BAD_PARAMETERS");
    }
    assert!(index(&world).await.is_empty());
}

async fn only_a_party_or_an_administrator_closes_a_channel(world: World) {
    let world = world.start().await;
    for (number, closer) in ["a", "b", "admin"].into_iter().enumerate() {
        let channel = open(
            &world,
            "a",
            &format!("open-{number}"),
            r#"{"target_site":"b"}"#,
        )
        .await;
        world
            .write_to(&keyspace().direct(&channel), &[("v", "1")])
            .await;
        for (id, command) in [("close", "channel_close"), ("info", "channel_info")] {
            let id = format!("{id}-{number}");
            let code = refused(&world, "c", &id, command, &naming(&channel)).await;
            assert_eq!(code, "RELAY.FORBIDDEN");
        }
        assert_eq!(traces(&world, &channel).await, [true; 3]);
        let id = format!("by-{number}");
        let closed = ask(&world, closer, &id, "channel_close", &naming(&channel)).await;
        assert_eq!(closed["closed"], true);
        assert_eq!(traces(&world, &channel).await, [false; 3]);
        let again = format!("again-{number}");
        let code = refused(&world, closer, &again, "channel_close", &naming(&channel)).await;
        assert_eq!(code, "RELAY.CHANNEL_UNKNOWN");
    }
}

async fn a_site_sees_its_own_channels_and_an_administrator_all(world: World) {
    let world = world.start().await;
    let ab = open(&world, "a", "1", r#"{"target_site":"b"}"#).await;
    let bc = open(&world, "b", "1", r#"{"target_site":"c"}"#).await;
    let listed = async |site: &str, id: &str, params: &str| {
        let list = ask(&world, site, id, "channel_list", params).await;
        let channels = list["channels"].as_array().unwrap().iter();
        let mut ids: Vec<String> = channels
            .map(|channel| channel["channel_id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(list["count"], ids.len());
        ids.sort();
        ids
    };
    let mut both = vec![ab.clone(), bc.clone()];
    both.sort();
    assert_eq!(listed("a", "l1", "{}").await, [ab.as_str()]);
    assert_eq!(listed("b", "l1", "{}").await, both);
    assert_eq!(listed("admin", "l1", "{}").await, both);
    assert_eq!(
        listed("b", "l2", r#"{"site_filter":"{c}"}"#).await,
        [bc.as_str()]
    );
    assert_eq!(
        listed("a", "l2", r#"{"site_filter":"c"}"#).await,
        Vec::<String>::new()
    );
    assert_eq!(
        listed("admin", "l2", r#"{"env_filter":"staging"}"#).await,
        Vec::<String>::new()
    );
    assert_eq!(
        listed("admin", "l3", r#"{"env_filter":"testing"}"#).await,
        both
    );
}

async fn a_site_opens_no_more_channels_than_it_may(mut world: World) {
    let mut few = options("one");
    few.max_channels = 2;
    world.start_with(few.clone()).await;
    for site in ["a", "b"] {
        let body = r#"{"environments":["testing"],"metadata":{},"registered_at":1}"#;
        world
            .store
            .hash_set(&keyspace().sites(), site, body)
            .await
            .unwrap();
    }
    let first = open(&world, "a", "1", r#"{"target_site":"b"}"#).await;
    open(&world, "a", "2", r#"{"target_site":"b"}"#).await;
    let code = refused(&world, "a", "3", "channel_open", r#"{"target_site":"b"}"#).await;
    assert_eq!(code, "RELAY.CHANNELS_FULL");
    // What others open with it doesn't use up its own.
    open(&world, "b", "1", r#"{"target_site":"a"}"#).await;
    ask(&world, "a", "4", "channel_close", &naming(&first)).await;
    open(&world, "a", "5", r#"{"target_site":"b"}"#).await;
}

async fn a_channel_goes_when_nobody_uses_it_and_no_sooner(world: World) {
    let world = world.start().await;
    let params = r#"{"target_site":"b","mode":"temporary","ttl_seconds":3}"#;
    let left = open(&world, "a", "1", params).await;
    let used = open(&world, "a", "2", params).await;
    let kept = open(
        &world,
        "a",
        "3",
        r#"{"target_site":"b","mode":"persistent","ttl_seconds":1}"#,
    )
    .await;
    let key = keyspace().direct(&used);
    eventually(PATIENCE, "the unused channel to be closed", async || {
        world.write_to(&key, &[("v", "1")]).await;
        (traces(&world, &left).await == [false; 3]).then_some(())
    })
    .await;
    assert_eq!(traces(&world, &used).await, [true; 3]);
    assert_eq!(traces(&world, &kept).await, [true; 3]);
    let code = refused(&world, "a", "4", "channel_info", &naming(&left)).await;
    assert_eq!(code, "RELAY.CHANNEL_UNKNOWN");
    eventually(
        PATIENCE,
        "the other to be closed once it isn't used",
        async || (traces(&world, &used).await == [false; 3]).then_some(()),
    )
    .await;
    assert_eq!(traces(&world, &kept).await, [true; 3]);
}

async fn a_batch_opens_as_many_channels_as_it_says(world: World) {
    let world = world.start().await;
    let item = r#"{"c":"channel_open","p":{"target_site":"b"}}"#;
    let fields = [("t", "bc"), ("i", "1"), ("p", &format!("[{item},{item}]"))];
    world.write("a", &fields).await;
    let answer = world
        .wait_for(&stream("a"), &[("t", "br"), ("ri", "1")])
        .await;
    let results: Value = serde_json::from_str(&field(&answer, "r")).unwrap();
    let id = |number: usize| {
        results[number]["r"]["channel_id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_ne!(id(0), id(1));
    assert_eq!(index(&world).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_is_run_again_after_a_crash_opens_no_second_channel() {
    let mut world = World::valkey().await.start().await;
    let channel = open(&world, "a", "1", r#"{"target_site":"b"}"#).await;
    let entry = world.wait_for(&stream("a"), &[("c", "channel_open")]).await;
    world.stop().await;
    // As after a crash between the work and the answer; the policy has turned against it meanwhile.
    world
        .rule("a:b", r#"{"action":"deny","reason":"no","commands":["*"]}"#)
        .await;
    world
        .store
        .set_remove(&keyspace().direct_index(), &channel)
        .await
        .unwrap();
    let mut client = world.server.as_ref().unwrap().client().await;
    let (key, id) = (stream("a"), entry.id.to_string());
    redis::cmd("XCLAIM")
        .arg(&[&key, "crossway", "relay", "0", &id, "FORCE", "JUSTID"])
        .exec_async(&mut client)
        .await
        .unwrap();
    world.start_with(options("one")).await;
    let answers = eventually(PATIENCE, "a second answer", async || {
        let entries = world.entries(&key).await;
        let answers: Vec<_> = entries
            .into_iter()
            .filter(|entry| field(entry, "ri") == "1")
            .collect();
        (answers.len() == 2).then_some(answers)
    })
    .await;
    let [first, second] = [0, 1].map(|at| field(&answers[at], "r"));
    assert_eq!(first, second);
    assert_eq!(index(&world).await, [channel]);
}
