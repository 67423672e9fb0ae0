//! What streams that are given up when nothing goes on in them need of a store.

use std::time::{Duration, Instant};

use crossway_harness::eventually;

use crate::store::{DEADLINE, Store};

/// Long enough that nothing in a test is ever quiet for it.
const LONG: Duration = Duration::from_secs(600);
/// Short enough to wait for; servers count in seconds.
const SHORT: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);

/// A consumer of the group asks for entries, and is given those that there are.
async fn ask(store: &Store) {
    let words = ["XREADGROUP", "GROUP", "g", "me", "STREAMS", "s", ">"];
    let _: redis::Value = store.raw(&words).await;
}

async fn delete_idle(store: &Store, idle: Duration) -> Option<Duration> {
    store
        .streams
        .delete_idle("s", idle)
        .await
        .expect("an answer")
}

pub(super) async fn a_group_is_made_once_and_with_its_stream(store: Store) {
    let streams = &store.streams;
    assert!(streams.make_group("s", "one").await.expect("a group"));
    assert!(!streams.make_group("s", "one").await.expect("an answer"));
    assert!(streams.make_group("s", "two").await.expect("a group"));
    assert!(store.all("s").await.is_empty());
    assert_eq!(store.raw::<String>(&["TYPE", "s"]).await, "stream");
}

pub(super) async fn a_group_that_is_made_late_begins_with_the_first_entry(store: Store) {
    let id = store.add("s", "early").await;
    store.streams.make_group("s", "g").await.expect("a group");
    ask(&store).await;
    assert_eq!(
        store
            .raw::<usize>(&["XACK", "s", "g", &id.to_string()])
            .await,
        1
    );
}

pub(super) async fn a_stream_is_deleted_once_nobody_has_used_it_for_long_enough(store: Store) {
    assert_eq!(delete_idle(&store, LONG).await, None);
    store.streams.make_group("s", "g").await.expect("a group");
    assert!(delete_idle(&store, LONG).await.is_some());
    eventually(DEADLINE, "the stream to go", || async {
        let idle = delete_idle(&store, SHORT).await;
        assert!(idle.is_none_or(|idle| idle <= SHORT + SECOND), "{idle:?}");
        idle.is_none().then_some(())
    })
    .await;
    assert_eq!(store.raw::<String>(&["TYPE", "s"]).await, "none");
}

pub(super) async fn a_stream_that_is_asked_in_vain_or_written_to_is_in_use(store: Store) {
    store.streams.make_group("s", "g").await.expect("a group");
    for round in 0..4 {
        let before = Instant::now();
        eventually(DEADLINE, "time to pass", || async {
            (before.elapsed() >= SHORT / 2).then_some(())
        })
        .await;
        // A read that finds nothing is use as a write is.
        if round < 2 {
            ask(&store).await;
        } else {
            store.add("s", "1").await;
        }
        assert!(delete_idle(&store, SHORT).await.is_some());
    }
    assert_eq!(store.values("s").await, ["1", "1"]);
}

pub(super) async fn only_a_stream_is_deleted_for_want_of_use(store: Store) {
    let streams = &store.streams;
    streams.hash_set("s", "f", "1").await.expect("a change");
    assert!(streams.delete_idle("s", Duration::ZERO).await.is_err());
    assert!(streams.make_group("s", "g").await.is_err());
    assert_eq!(streams.hash_all("s").await.expect("a hash").len(), 1);
}

pub(super) async fn a_set_holds_each_member_once(store: Store) {
    let streams = &store.streams;
    assert!(streams.set_members("set").await.expect("a set").is_empty());
    assert!(streams.set_add("set", "b").await.expect("an answer"));
    assert!(streams.set_add("set", "a").await.expect("an answer"));
    assert!(!streams.set_add("set", "a").await.expect("an answer"));
    let mut members = streams.set_members("set").await.expect("a set");
    members.sort();
    assert_eq!(members, ["a", "b"]);
    assert!(streams.set_remove("set", "a").await.expect("an answer"));
    assert!(!streams.set_remove("set", "a").await.expect("an answer"));
    assert_eq!(streams.set_members("set").await.expect("a set"), ["b"]);
    assert!(streams.hash_get("set", "f").await.is_err());
    assert!(streams.delete("set").await.expect("an answer"));
    assert!(!streams.delete("set").await.expect("an answer"));
    assert!(streams.set_members("set").await.expect("a set").is_empty());
}
