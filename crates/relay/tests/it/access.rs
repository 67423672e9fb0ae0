//! Users of a real server: the daemon with its own and no more, and what the parties of a channel
//! are given and lose.

use crossway_core::address::SiteId;
use crossway_harness::{RedisServer, eventually};
use crossway_relay::{Discovery, daemon_rules, site_rules};
use crossway_transport::streams::valkey::Valkey;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};
use std::sync::Arc;

use crate::world::{PATIENCE, World, field, keyspace, options, stream};

/// A world whose daemon has a user of its own; everybody else is the default user.
async fn guarded(manages_access: bool) -> World {
    let mut world = World::valkey().await;
    let server = world.server.as_ref().unwrap();
    let mut rules = daemon_rules(&keyspace(), manages_access);
    rules.extend(["on".to_owned(), ">secret".to_owned()]);
    set_user(server, "crossway", &rules).await;
    let url = server.url().replace("://", "://crossway:secret@");
    let store = Arc::new(Valkey::connect(&url.parse().unwrap()).await.unwrap());
    world.daemons_store = Some(store);
    world
}

async fn set_user(server: &RedisServer, user: &str, rules: &[String]) {
    redis::cmd("ACL")
        .arg("SETUSER")
        .arg(user)
        .arg(rules)
        .exec_async(&mut server.client().await)
        .await
        .unwrap();
}

/// What the server has refused to anybody for want of rights.
async fn refusals(server: &RedisServer) -> Vec<String> {
    let log: Vec<redis::Value> = redis::cmd("ACL")
        .arg("LOG")
        .query_async(&mut server.client().await)
        .await
        .unwrap();
    log.iter().map(|entry| format!("{entry:?}")).collect()
}

async fn log_in(server: &RedisServer, user: &str) -> MultiplexedConnection {
    let url = server.url().replace("://", &format!("://{user}:{user}@"));
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// Gives a site a user with the rules that it has without any channel.
async fn add_user(server: &RedisServer, name: &str) {
    let site = SiteId::parse(name).unwrap();
    let mut rules = site_rules(&keyspace(), &site, []);
    rules.extend(["on".to_owned(), format!(">{name}")]);
    set_user(server, name, &rules).await;
}

async fn ask(world: &World, site: &str, id: &str, command: &str, params: &str) -> Value {
    world.command(site, id, command, params).await;
    let answer = world.answer(site, id).await;
    assert_eq!(field(&answer, "st"), "ok", "{answer:?}");
    serde_json::from_str(&field(&answer, "r")).unwrap()
}

async fn register(world: &World, site: &str) {
    let body = r#"{"environments":["testing"],"metadata":{},"registered_at":1}"#;
    let sites = keyspace().sites();
    world.store.hash_set(&sites, site, body).await.unwrap();
}

async fn append(user: &mut MultiplexedConnection, key: &str) -> Result<String, String> {
    let add = redis::cmd("XADD").arg(&[key, "*", "v", "1"]).to_owned();
    add.query_async(user)
        .await
        .map_err(|error: redis::RedisError| format!("{} {error}", error.code().unwrap_or_default()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daemon_does_all_its_work_with_the_rights_of_its_own_user() {
    let mut world = guarded(true).await;
    let mut wide = options("one");
    wide.discovery = Discovery::Scan;
    wide.manage_access = true;
    wide.max_len = 10;
    world.start_with(wide).await;
    // Found by looking, in both spellings.
    world
        .write_to("{a}:gnode:unified:testing", &[("t", "e"), ("c", "hello")])
        .await;
    for site in ["b", "admin"] {
        world.write(site, &[("t", "e"), ("c", "hello")]).await;
        world.settled(site).await;
    }
    let register =
        json!({"id": "c", "environments": ["testing"], "entities": ["part"]}).to_string();
    let fields = [
        ("t", "c"),
        ("i", "r"),
        ("c", "register_service"),
        ("p", register.as_str()),
    ];
    world.write_to(&keyspace().register(), &fields).await;
    world.answer("c", "r").await;
    let rule = json!({"source": "b", "target": "c", "policy": {"action": "deny", "reason": "no", "commands": ["bad"]}});
    ask(&world, "admin", "p", "relay_policy_set", &rule.to_string()).await;
    ask(&world, "admin", "l", "relay_policy_list", "{}").await;

    let id = world.send("b", "part", "good").await;
    let delivery = field(&world.arrival("c", &id).await, "i");
    world.reply("c", &delivery, "1").await;
    world
        .wait_for(&stream("b"), &[("t", "r"), ("ri", &id), ("r", "1")])
        .await;
    let id = world.send("b", "c", "bad").await;
    assert_eq!(world.code("b", &id).await, "RELAY.DENIED");
    let id = world.send("b", "{a}:gnode:unified:testing", "good").await;
    let forwarded = [("t", "c"), ("_oi", id.as_str())];
    world
        .wait_for("{a}:gnode:unified:testing", &forwarded)
        .await;

    ask(&world, "b", "s", "relay_stats", "{}").await;
    ask(
        &world,
        "b",
        "n",
        "broadcast",
        r#"{"topic":"news","payload":1}"#,
    )
    .await;
    let params = r#"{"target_site":"c","mode":"temporary","ttl_seconds":1}"#;
    let opened = ask(&world, "b", "o1", "channel_open", params).await;
    let key = opened["stream_key"].as_str().unwrap().to_owned();
    let closed = ask(&world, "b", "o2", "channel_open", params).await["channel_id"].to_string();
    ask(
        &world,
        "b",
        "x",
        "channel_close",
        &format!(r#"{{"channel_id":{closed}}}"#),
    )
    .await;
    eventually(PATIENCE, "the channel to be closed", async || {
        (!world.store.exist(&[key.as_str().into()]).await.unwrap()[0]).then_some(())
    })
    .await;
    ask(&world, "c", "d", "deregister_service", "{}").await;
    // Trimming, and leaving, too.
    for _ in 0..400 {
        world.write("b", &[("t", "e"), ("c", "noise")]).await;
    }
    eventually(PATIENCE, "the stream to be trimmed", async || {
        (world.counter("crossway_relay_trimmed_entries_total") > 0).then_some(())
    })
    .await;
    world.stop().await;
    world.start_with(options("one")).await;
    world.settled("b").await;
    world.stop().await;
    let refused = refusals(world.server.as_ref().unwrap()).await;
    assert!(refused.is_empty(), "{refused:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_users_of_a_channel_reach_it_for_as_long_as_it_is_open() {
    let mut world = guarded(true).await;
    let mut managing = options("one");
    managing.manage_access = true;
    world.start_with(managing).await;
    for site in ["a", "b", "c"] {
        add_user(world.server.as_ref().unwrap(), site).await;
        register(&world, site).await;
    }
    let server = world.server.as_ref().unwrap();
    let [mut a, mut b, mut c] = [
        log_in(server, "a").await,
        log_in(server, "b").await,
        log_in(server, "c").await,
    ];
    let opened = ask(&world, "a", "1", "channel_open", r#"{"target_site":"b"}"#).await;
    let other = ask(&world, "a", "2", "channel_open", r#"{"target_site":"c"}"#).await;
    let key = opened["stream_key"].as_str().unwrap();
    for user in [&mut a, &mut b] {
        append(user, key).await.unwrap();
    }
    let refused = append(&mut c, key).await.unwrap_err();
    assert!(refused.contains("NOPERM"), "{refused}");
    let read: redis::Value = redis::cmd("XREADGROUP")
        .arg(&["GROUP", "b", "one", "STREAMS", key, ">"])
        .query_async(&mut b)
        .await
        .unwrap();
    assert_ne!(read, redis::Value::Nil);
    // What is known of it can be read and not changed.
    let meta = format!("{key}:meta");
    let mode: String = redis::cmd("HGET")
        .arg(&[&meta, "mode"])
        .query_async(&mut b)
        .await
        .unwrap();
    assert_eq!(mode, "persistent");
    let refused = append(&mut b, &meta).await.unwrap_err();
    assert!(refused.contains("NOPERM"), "{refused}");

    ask(
        &world,
        "b",
        "1",
        "channel_close",
        &format!(r#"{{"channel_id":{}}}"#, opened["channel_id"]),
    )
    .await;
    for user in [&mut a, &mut b] {
        let refused = append(user, key).await.unwrap_err();
        assert!(refused.contains("NOPERM"), "{refused}");
        append(user, &stream("c")).await.unwrap_err();
    }
    // The other channel, the site's own keys and its password stay.
    append(&mut a, other["stream_key"].as_str().unwrap())
        .await
        .unwrap();
    append(&mut log_in(server, "a").await, &stream("a"))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_may_not_change_users_says_so_and_opens_nothing() {
    let mut world = guarded(false).await;
    let mut managing = options("one");
    managing.manage_access = true;
    world.start_with(managing).await;
    for site in ["a", "b"] {
        register(&world, site).await;
    }
    world
        .command("a", "1", "channel_open", r#"{"target_site":"b"}"#)
        .await;
    assert_eq!(world.code("a", "1").await, "RELAY.UNAVAILABLE");
    let reason = field(&world.answer("a", "1").await, "e");
    assert!(
        reason.contains("NOPERM") && reason.contains("relay.manage_access"),
        "{reason}"
    );
    let index = keyspace().direct_index();
    assert!(world.store.set_members(&index).await.unwrap().is_empty());
    let streams = world.store.scan("*:direct:*").await.unwrap();
    assert!(streams.is_empty(), "{streams:?}");
}
