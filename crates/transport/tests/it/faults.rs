//! What only a server can be put through: it dies, hangs, forgets and is cut off.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_harness::{RedisServer, eventually};
use crossway_transport::streams::{GroupReader, Health, Settled, StoreError};

use crate::cut::Way;
use crate::store::{
    DEADLINE, ENDLESS, Store, bare, fence, forward, keys, read, read_until, said, settle,
};

/// Hands over what comes on `a` to `b` until `b` holds so many entries, meeting errors as a daemon
/// does: it reads again.
async fn relay(store: &Store, reader: &mut dyn GroupReader, entries: usize) {
    let relaying = async {
        loop {
            if let Ok(batch) = reader.read().await {
                let said = said(&batch.entries);
                let settlements = batch.entries.iter().zip(&said);
                let settlements = settlements
                    .map(|(read, said)| forward(read, "b", said.trim_start_matches("a=")));
                // What is not settled comes again.
                let _ = reader.settle(&fence(), settlements.collect()).await;
            }
            let length = store
                .streams
                .range("b", crossway_core::entry::EntryId::ZERO, entries + 1)
                .await
                .map_or(0, |all| all.len());
            if length >= entries {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE * 2, relaying)
        .await
        .expect("everything is relayed in time");
}

fn numbers(to: usize) -> Vec<String> {
    (0..to).map(|number| number.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_entry_is_settled_once_though_the_server_is_killed() {
    const ENTRIES: usize = 300;
    let server = RedisServer::builder().append_only(true).start().await;
    let store = Arc::new(Store::on(&server).await);
    for number in 0..ENTRIES {
        store.add("a", &number.to_string()).await;
    }
    let relaying = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            let mut reader = store.reader_with(&["a"], |options| options.count = 3);
            relay(&store, &mut *reader, ENTRIES).await;
        }
    });
    let mut server = server;
    for share in 1..=4 {
        let mut client = server.client().await;
        eventually(DEADLINE, "some entries to be relayed", async || {
            let length: usize = redis::cmd("XLEN")
                .arg("b")
                .query_async(&mut client)
                .await
                .expect("a length");
            (length >= ENTRIES * share / 6).then_some(())
        })
        .await;
        server.kill();
        server.restart().await;
    }
    relaying.await.expect("everything is relayed");
    assert_eq!(store.values("b").await, numbers(ENTRIES));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_entry_is_settled_once_though_answers_are_lost() {
    const ENTRIES: usize = 60;
    let server = RedisServer::start().await;
    let way = Way::to(server.port()).await;
    let store = Store::by(&way.url(), &server).await;
    for number in 0..ENTRIES {
        store.add("a", &number.to_string()).await;
    }
    let mut reader = store.reader_with(&["a"], |options| options.count = 10);
    let mut lost = 0;
    for share in 1..=6 {
        if share % 2 == 0 {
            way.cut_the_next_answer();
            lost += 1;
        }
        relay(&store, &mut *reader, share * 10).await;
    }
    assert_eq!(way.cuts(), lost);
    assert_eq!(store.values("b").await, numbers(ENTRIES));
    assert_eq!(store.pending("a").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_told_and_what_was_written_is_not_given_again() {
    let server = RedisServer::start().await;
    let way = Way::to(server.port()).await;
    let store = Store::by(&way.url(), &server).await;
    store.add("a", "1").await;
    store.add("a", "2").await;
    let mut reader = store.reader(&["a"]);
    let batch = read(&mut *reader, 2).await;
    way.cut_the_next_answer();
    let lost = settle(&mut *reader, vec![forward(&batch.entries[0], "b", "1")]).await;
    assert!(
        matches!(lost, Err(StoreError::Unreachable { .. })),
        "{lost:?}"
    );
    assert_eq!(said(&read(&mut *reader, 1).await.entries), ["a=2"]);
    assert_eq!(store.values("b").await, ["1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_was_sent_ahead_and_lost_comes_again() {
    let server = RedisServer::start().await;
    let store = Store::on(&server).await;
    // So many that more are likely, and the next read is sent ahead.
    for number in 0..100 {
        store.add("a", &number.to_string()).await;
    }
    let mut reader = store.reader_with(&["a"], |options| options.block = ENDLESS);
    let batch = read(&mut *reader, 100).await;
    settle(&mut *reader, batch.entries.iter().map(bare).collect())
        .await
        .expect("an answer");
    // It waits at the server by now, or will; its answer is on the way when it breaks.
    eventually(DEADLINE, "a read to wait", async || {
        let clients: String = store.raw(&["CLIENT", "LIST"]).await;
        clients.contains("cmd=xreadgroup").then_some(())
    })
    .await;
    store.add("a", "last").await;
    eventually(DEADLINE, "the entry to be pending", async || {
        (store.pending("a").await == 1).then_some(())
    })
    .await;
    store
        .raw::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
        .await;
    let batch = read_after_errors(&mut *reader).await;
    assert_eq!(batch, ["a=last"]);
}

/// Reads until there are entries, as a daemon whose connection may break.
async fn read_after_errors(reader: &mut dyn GroupReader) -> Vec<String> {
    let reading = async {
        loop {
            match reader.read().await {
                Ok(batch) if !batch.entries.is_empty() => return said(&batch.entries),
                Ok(_) | Err(_) => {}
            }
        }
    };
    tokio::time::timeout(DEADLINE, reading)
        .await
        .expect("entries in time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_that_still_waits_at_the_server_takes_no_entries() {
    let server = RedisServer::start().await;
    let way = Way::to(server.port()).await;
    let store = Store::by(&way.url(), &server).await;
    store.add("a", "1").await;
    let mut reader = store.reader_with(&["a"], |options| options.block = Duration::from_secs(60));
    let batch = read(&mut *reader, 1).await;
    // The settlement's answer is lost, while the read that was sent ahead waits at the server on
    // a connection that nobody closed there.
    way.keep_server_sides();
    way.cut_the_next_answer();
    let lost = settle(&mut *reader, vec![bare(&batch.entries[0])]).await;
    assert!(
        matches!(lost, Err(StoreError::Unreachable { .. })),
        "{lost:?}"
    );
    let empty = reader.read().await.expect("a read");
    assert!(empty.entries.is_empty());
    store.add("a", "2").await;
    assert_eq!(said(&read(&mut *reader, 1).await.entries), ["a=2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_told_and_taken_up_again() {
    let server = RedisServer::start().await;
    let store = Store::on(&server).await;
    store.add("a", "1").await;
    let mut reader = store.reader(&["a"]);
    read(&mut *reader, 1).await;
    server.pause();
    let began = Instant::now();
    let hanging = reader.read().await;
    assert!(
        matches!(hanging, Err(StoreError::Unreachable { .. })),
        "{hanging:?}"
    );
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    assert!(matches!(store.streams.health().await, Health::Down(_)));
    server.resume();
    assert_eq!(read_after_errors(&mut *reader).await, ["a=1"]);
    eventually(DEADLINE, "the store to be up", async || {
        (store.streams.health().await == Health::Up).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_else_works_again_after_a_restart() {
    let mut server = RedisServer::builder().append_only(true).start().await;
    let store = Store::on(&server).await;
    store
        .streams
        .hash_set("h", "f", "1")
        .await
        .expect("a change");
    store
        .streams
        .hash_update("h", &mut |_| Vec::new())
        .await
        .expect("an update");
    server.kill();
    let refused = store.streams.hash_get("h", "f").await;
    assert!(
        matches!(refused, Err(StoreError::Unreachable { .. })),
        "{refused:?}"
    );
    server.restart().await;
    let value = eventually(DEADLINE, "an answer", async || {
        store.streams.hash_get("h", "f").await.ok()
    })
    .await;
    assert_eq!(value.as_deref(), Some("1"));
    store
        .streams
        .hash_update("h", &mut |_| Vec::new())
        .await
        .expect("an update on a connection that broke");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_was_forgotten_is_given_again() {
    let server = RedisServer::start().await;
    let store = Store::on(&server).await;
    for number in 0..600 {
        store.add("a", &number.to_string()).await;
    }
    let mut reader = store.reader_with(&["a"], |options| options.count = 1000);
    let batch = read(&mut *reader, 600).await;
    let forwards: Vec<_> = batch
        .entries
        .iter()
        .enumerate()
        .map(|(at, read)| forward(read, "b", &at.to_string()))
        .collect();
    store.raw::<()>(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(
        settle(&mut *reader, forwards[..1].to_vec())
            .await
            .expect("an answer"),
        [Settled::Done]
    );
    store.raw::<()>(&["SCRIPT", "FLUSH"]).await;
    let settled = settle(&mut *reader, forwards[1..].to_vec())
        .await
        .expect("an answer");
    assert_eq!(settled, vec![Settled::Done; 599]);
    assert_eq!(store.values("b").await, numbers(600));
}

#[tokio::test]
async fn an_interruption_before_a_read_is_not_missed() {
    let server = RedisServer::start().await;
    let store = Store::on(&server).await;
    let mut reader = store.reader_with(&["a"], |options| options.block = ENDLESS);
    for _ in 0..3 {
        reader.read().await.expect("the read of what is pending");
        reader.interrupter().interrupt().await;
        let read = tokio::time::timeout(DEADLINE, reader.read())
            .await
            .expect("an answer in time")
            .expect("a read");
        assert!(read.entries.is_empty());
        reader.rewind();
    }
}

#[tokio::test]
async fn a_change_ends_a_waiting_read() {
    let server = RedisServer::start().await;
    let store = Store::on(&server).await;
    let mut reader = store.reader_with(&["a"], |options| {
        options.block = ENDLESS;
        options.watched = keys(&["rules"]);
    });
    reader.read().await.expect("the read of what is pending");
    let change = store.streams.hash_set("rules", "f", "1");
    let (batch, changed) = tokio::join!(
        read_until(&mut *reader, "change", |batch| batch.changed),
        change
    );
    changed.expect("a change");
    assert!(batch.entries.is_empty());
    // The read that waited is still the one that is answered.
    store.add("a", "1").await;
    assert_eq!(said(&read(&mut *reader, 1).await.entries), ["a=1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_settlement_leaves_the_reader_usable() {
    let server = RedisServer::start().await;
    let store = Store::on(&server).await;
    store.add("a", "1").await;
    store.add("a", "2").await;
    let mut reader = store.reader(&["a"]);
    let batch = read(&mut *reader, 2).await;
    server.pause();
    let fence = fence();
    let settling = reader.settle(&fence, vec![forward(&batch.entries[0], "b", "1")]);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), settling)
            .await
            .is_err()
    );
    server.resume();
    let again = read_after_errors(&mut *reader).await;
    assert!(again == ["a=2"] || again == ["a=1", "a=2"], "{again:?}");
    assert!(store.values("b").await.len() <= 1);
}

#[tokio::test]
async fn a_dropped_read_loses_nothing() {
    let server = RedisServer::start().await;
    let store = Store::on(&server).await;
    let mut reader = store.reader_with(&["a"], |options| options.block = ENDLESS);
    reader.read().await.expect("the read of what is pending");
    for number in 0..20_u64 {
        let reading = reader.read();
        assert!(
            tokio::time::timeout(Duration::from_micros(number * 100), reading)
                .await
                .is_err()
        );
    }
    store.add("a", "1").await;
    assert_eq!(said(&read(&mut *reader, 1).await.entries), ["a=1"]);
}
