//! Several daemons on one store, and a store that misbehaves.

use std::sync::Arc;

use crossway_core::entry::EntryId;
use crossway_harness::eventually;
use crossway_relay::Relay;
use prometheus_client::registry::Registry;

use crate::world::{PATIENCE, World, field, keyspace, options, stream};

on_both_stores!(
    several_daemons_share_the_work_and_order_is_kept,
    a_daemon_that_leaves_is_replaced_and_nothing_is_doubled,
);

/// Sends numbered commands and gives the numbers in the order in which they arrived.
async fn arrivals(world: &World, from: &str, count: usize) -> Vec<usize> {
    eventually(PATIENCE, "all commands to arrive", || async {
        let arrived: Vec<usize> = world
            .entries(&stream("b"))
            .await
            .iter()
            .filter(|entry| field(entry, "ss") == from)
            .filter_map(|entry| field(entry, "_oi").parse().ok())
            .collect();
        (arrived.len() >= count).then_some(arrived)
    })
    .await
}

async fn several_daemons_share_the_work_and_order_is_kept(world: World) {
    let world = world.start().await;
    let mut others = Vec::new();
    for member in ["two", "three"] {
        let mut metrics = Registry::default();
        others.push(Relay::start(
            Arc::clone(&world.store),
            options(member),
            &mut metrics,
        ));
    }
    eventually(PATIENCE, "the slices to be shared out", || async {
        let hash = world.store.hash_all(&keyspace().members()).await.unwrap();
        let held = |member: &str| {
            hash.iter()
                .filter(|(field, holder)| field.starts_with("s:") && *holder == member)
                .count()
        };
        let shares = [held("one"), held("two"), held("three")];
        (shares.iter().all(|share| (20..=22).contains(share)) && shares.iter().sum::<usize>() == 64)
            .then_some(())
    })
    .await;
    for index in 0..300 {
        for from in ["a", "c", "admin"] {
            world
                .write(
                    from,
                    &[
                        ("t", "c"),
                        ("i", &index.to_string()),
                        ("c", "go"),
                        ("_rt", "b"),
                    ],
                )
                .await;
        }
    }
    for from in ["a", "c", "admin"] {
        assert_eq!(
            arrivals(&world, from, 300).await,
            (0..300).collect::<Vec<_>>(),
            "{from}"
        );
    }
    for relay in others {
        assert!(relay.stop(PATIENCE).await);
    }
}

async fn a_daemon_that_leaves_is_replaced_and_nothing_is_doubled(world: World) {
    let mut world = world.start().await;
    world.settled("a").await;
    let mut metrics = Registry::default();
    let other = Relay::start(Arc::clone(&world.store), options("two"), &mut metrics);
    for index in 0..200 {
        world
            .write(
                "a",
                &[
                    ("t", "c"),
                    ("i", &index.to_string()),
                    ("c", "go"),
                    ("_rt", "b"),
                ],
            )
            .await;
        if index == 100 {
            world.stop().await;
        }
    }
    assert_eq!(
        arrivals(&world, "a", 200).await,
        (0..200).collect::<Vec<_>>()
    );
    assert!(other.stop(PATIENCE).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_server_gets_its_groups_sites_and_rules_back() {
    let world = World::valkey().await.start().await;
    let deny = r#"{"action":"deny","reason":"","commands":["*"]}"#;
    world.rule("a:c", deny).await;
    world.settled("a").await;
    world.settled("b").await;
    world.server.as_ref().unwrap().flush().await;
    let id = world.send("a", "b", "go").await;
    world.arrival("b", &id).await;
    let id = world.send("a", "c", "go").await;
    assert_eq!(world.code("a", &id).await, "RELAY.DENIED");
    world.counts("crossway_relay_store_losses_total", 1).await;
    eventually(PATIENCE, "remade groups to be counted", async || {
        (world.counter("crossway_relay_groups_remade_total") > 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_comes_back_loses_and_doubles_nothing() {
    let mut world = World::valkey().await;
    world.server = Some(
        crossway_harness::RedisServer::builder()
            .append_only(true)
            .start()
            .await,
    );
    world.store = crate::world::connect(world.server.as_ref().unwrap()).await;
    let mut world = world.start().await;
    let mut written = Vec::new();
    for index in 0..300 {
        if index % 100 == 50 {
            let server = world.server.as_mut().unwrap();
            server.kill();
            server.restart().await;
        }
        let id = index.to_string();
        let fields = [("t", "c"), ("i", &*id), ("c", "go"), ("_rt", "b")];
        let fields: crossway_core::entry::Fields = fields
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        // A write whose outcome is unknown isn't repeated, so it may be there or not.
        if world.store.append(&stream("a"), fields).await.is_ok() {
            written.push(index);
        }
    }
    let arrived = eventually(PATIENCE, "all that was written to arrive", || async {
        let arrived: Vec<usize> = world
            .entries(&stream("b"))
            .await
            .iter()
            .filter_map(|entry| field(entry, "_oi").parse().ok())
            .collect();
        written
            .iter()
            .all(|index| arrived.contains(index))
            .then_some(arrived)
    })
    .await;
    let mut once = arrived.clone();
    once.dedup();
    assert_eq!(arrived, once);
    assert!(arrived.is_sorted());
    assert!(
        world
            .store
            .range(&stream("a"), EntryId::ZERO, 1)
            .await
            .is_ok()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server_only_delays() {
    let world = World::valkey().await.start().await;
    world.settled("a").await;
    let server = world.server.as_ref().unwrap();
    server.pause();
    // The daemon's own rounds run into their limit meanwhile.
    let paused = std::time::Instant::now();
    eventually(PATIENCE, "three rounds to be missed", || async {
        (world.counter("crossway_relay_store_errors_total") > 0 || paused.elapsed().as_secs() >= 6)
            .then_some(())
    })
    .await;
    server.resume();
    for index in 0..50 {
        world
            .write(
                "a",
                &[
                    ("t", "c"),
                    ("i", &index.to_string()),
                    ("c", "go"),
                    ("_rt", "b"),
                ],
            )
            .await;
    }
    assert_eq!(arrivals(&world, "a", 50).await, (0..50).collect::<Vec<_>>());
}
