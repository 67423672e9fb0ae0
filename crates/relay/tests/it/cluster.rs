//! What the relay promises on a cluster whose nodes die.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_core::entry::{Entry, EntryId, Fields};
use crossway_harness::{RedisCluster, eventually};
use crossway_transport::streams::Streams;
use tokio_util::sync::CancellationToken;

use crate::world::{World, field, options, stream};

/// A failover takes seconds, and everything that waits for it starts over.
const PATIENCE: Duration = Duration::from_secs(40);
const COMMANDS: usize = 300;
const KILL_AFTER: usize = 80;

/// Writes until the store has confirmed it; how often it was tried.
async fn write(store: &Arc<dyn Streams>, key: &str, pairs: &[(&str, &str)]) -> usize {
    let end = Instant::now() + PATIENCE;
    for tries in 1.. {
        let fields: Fields = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        match store.append(key, fields).await {
            Ok(_) => return tries,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    unreachable!("the deadline comes first")
}

/// Answers every command that arrives at `b`, each delivery id once.
async fn serve(store: Arc<dyn Streams>, stop: CancellationToken) {
    let (key, mut from, mut seen) = (stream("b"), EntryId::ZERO, HashSet::new());
    while !stop.is_cancelled() {
        for entry in store.range(&key, from, 100).await.unwrap_or_default() {
            from = entry.id.next().unwrap();
            let delivery = field(&entry, "i");
            if field(&entry, "t") == "c" && seen.insert(delivery.clone()) {
                let result = format!("{:?}", field(&entry, "_oi"));
                let reply = [("t", "r"), ("ri", &*delivery), ("st", "ok"), ("r", &result)];
                write(&store, &key, &reply).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The first of each by a name, in order; all entries of one name agree about `same`.
fn firsts(entries: &[Entry], name: &str, same: &str, retried: &HashSet<String>) -> Vec<String> {
    let mut order = Vec::new();
    let mut known: HashMap<String, String> = HashMap::new();
    for entry in entries {
        let (id, same) = (field(entry, name), field(entry, same));
        match known.get(&id) {
            Some(before) if !retried.contains(&id) => assert_eq!(*before, same, "{id}"),
            Some(_) => {}
            None => {
                known.insert(id.clone(), same);
                order.push(id);
            }
        }
    }
    order
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_overtaken_when_the_targets_node_is_killed_and_its_replica_takes_over() {
    survives_the_node_of(&stream("b")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_overtaken_when_the_sources_node_is_killed_and_its_replica_takes_over() {
    survives_the_node_of(&stream("a")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_overtaken_when_the_node_of_the_daemons_own_keys_is_killed() {
    survives_the_node_of(&crate::world::keyspace().members()).await;
}

/// A hand-over that was broken off is one whose entry is read again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_has_the_delivery_id_of_the_first_whichever_daemon_makes_it() {
    let cluster = RedisCluster::start(3).await;
    let mut world = World::cluster(&cluster).await.start().await;
    let id = world.send("a", "b", "get").await;
    world.arrival("b", &id).await;
    world.settled("a").await;
    world.stop().await;
    for mut client in cluster.clients().await {
        // Whichever node has the stream.
        let again: redis::RedisResult<String> = redis::cmd("XGROUP")
            .arg(&["SETID", &stream("a"), "crossway", "0"])
            .query_async(&mut client)
            .await;
        drop(again);
    }
    world.start_with(options("two")).await;
    let copies = eventually(PATIENCE, "a copy", async || {
        let entries = world.entries(&stream("b")).await;
        let arrived: Vec<String> = entries
            .iter()
            .filter(|entry| field(entry, "_oi") == id)
            .map(|entry| field(entry, "i"))
            .collect();
        (arrived.len() == 2).then_some(arrived)
    })
    .await;
    assert_eq!(copies[0], copies[1]);
    assert!(copies[0].starts_with("d."), "{copies:?}");
    world.stop().await;
}

async fn survives_the_node_of(key: &str) {
    let mut cluster = RedisCluster::start_with_replicas(3).await;
    let (home, away) = (
        cluster.master_of(&stream("a")).await,
        cluster.master_of(&stream("b")).await,
    );
    assert_ne!(home, away, "the two sites lie on different nodes");
    let victim = cluster.master_of(key).await;
    let mut world = World::cluster(&cluster).await;
    let mut told = options("one");
    told.reply_ttl = Duration::from_secs(120);
    world.start_with(told).await;
    for site in ["a", "b"] {
        let body =
            serde_json::json!({"environments": ["testing"], "metadata": {}, "registered_at": 1});
        let sites = crate::world::keyspace().sites();
        world
            .store
            .hash_set(&sites, site, &body.to_string())
            .await
            .unwrap();
    }
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serve(Arc::clone(&world.store), stop.clone()));

    let mut retried = HashSet::new();
    let mut expected = Vec::new();
    for number in 0..COMMANDS {
        if number == KILL_AFTER {
            cluster.kill(victim);
        }
        let id = format!("r{number}");
        let command = [
            ("t", "c"),
            ("i", &*id),
            ("c", "get"),
            ("p", "{}"),
            ("_rt", "b"),
        ];
        if write(&world.store, &stream("a"), &command).await > 1 {
            retried.insert(id.clone());
        }
        expected.push(id);
    }

    let wanted: HashSet<&String> = expected.iter().collect();
    let replies = eventually(PATIENCE, "a reply to every command", async || {
        let entries = world
            .store
            .range(&stream("a"), EntryId::ZERO, 100_000)
            .await
            .ok()?;
        let replies: Vec<Entry> = entries
            .into_iter()
            .filter(|entry| !field(entry, "_cr").is_empty())
            .collect();
        let answered: HashSet<String> = replies.iter().map(|entry| field(entry, "ri")).collect();
        wanted
            .iter()
            .all(|id| answered.contains(*id))
            .then_some(replies)
    })
    .await;
    stop.cancel();
    serving.await.unwrap();

    let arrivals: Vec<Entry> = world
        .entries(&stream("b"))
        .await
        .into_iter()
        .filter(|entry| field(entry, "t") == "c")
        .collect();
    assert_eq!(firsts(&arrivals, "_oi", "i", &retried), expected);
    assert_eq!(firsts(&replies, "ri", "_cr", &retried), expected);
    for reply in &replies {
        assert_eq!(field(reply, "r"), format!("{:?}", field(reply, "ri")));
    }
    assert_eq!(cluster.clients().await.len(), 3, "a replica took over");
    let last = expected.last().unwrap();
    let polled: Arc<str> = format!("a:res:{last}").into();
    let polled = world.store.get_many(&[polled]).await.unwrap();
    assert!(polled[0].is_some());
    world.stop().await;
}
