//! What everything but reading and settling promises.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use crossway_core::entry::EntryId;
use crossway_transport::streams::{HashChange, Health, Key, StoreError};

use crate::store::{Store, bare, fields, keys, read, settle, value};

pub(super) async fn entries_are_kept_as_they_were_appended(store: Store) {
    let odd = fields(&[("n", "1"), ("n", "2"), ("", ""), ("é\r\n", "\0")]);
    let id = store
        .streams
        .append("a", odd.clone())
        .await
        .expect("an entry");
    let next = store.add("a", "x").await;
    assert!(next > id);
    let entries = store.all("a").await;
    assert_eq!(
        (entries[0].id, &entries[0].fields, entries[1].id),
        (id, &odd, next)
    );
    assert!(store.all("nothing").await.is_empty());
}

pub(super) async fn a_range_begins_where_it_is_told(store: Store) {
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(store.add("a", &number.to_string()).await);
    }
    let range = async |from, count| {
        let entries = store
            .streams
            .range("a", from, count)
            .await
            .expect("a range");
        entries.iter().map(value).collect::<Vec<_>>()
    };
    assert_eq!(range(ids[1], 2).await, ["1", "2"]);
    assert_eq!(
        range(ids[4].next().expect("a next id"), 2).await,
        Vec::<String>::new()
    );
    assert_eq!(range(EntryId::ZERO, 0).await, Vec::<String>::new());
}

pub(super) async fn a_hash_holds_what_was_set(store: Store) {
    let streams = &store.streams;
    assert_eq!(streams.hash_all("h").await.expect("a hash"), HashMap::new());
    assert_eq!(streams.hash_get("h", "f").await.expect("a field"), None);
    assert!(streams.hash_add("h", "f", "1").await.expect("an answer"));
    assert!(!streams.hash_add("h", "f", "2").await.expect("an answer"));
    assert_eq!(
        streams
            .hash_get("h", "f")
            .await
            .expect("a field")
            .as_deref(),
        Some("1")
    );
    streams.hash_set("h", "f", "3").await.expect("a change");
    streams.hash_set("h", "g", "").await.expect("a change");
    let expected =
        [("f", "3"), ("g", "")].map(|(field, value)| (field.to_owned(), value.to_owned()));
    assert_eq!(
        streams.hash_all("h").await.expect("a hash"),
        HashMap::from(expected)
    );
    assert!(streams.hash_remove("h", "f").await.expect("an answer"));
    assert!(!streams.hash_remove("h", "f").await.expect("an answer"));
}

pub(super) async fn no_change_of_a_hash_is_lost(store: Store) {
    const WRITERS: usize = 8;
    const EACH: usize = 15;
    let store = Arc::new(store);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for _ in 0..EACH {
                    let mut increase = |hash: &HashMap<String, String>| {
                        let sum: usize = hash
                            .get("sum")
                            .map_or(0, |sum| sum.parse().expect("a number"));
                        vec![
                            HashChange::Set("sum".to_owned(), (sum + 1).to_string()),
                            HashChange::Set(format!("writer{writer}"), sum.to_string()),
                        ]
                    };
                    let written = store
                        .streams
                        .hash_update("h", &mut increase)
                        .await
                        .expect("an update");
                    assert_eq!(written.len(), 2);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("the writer ends well");
    }
    let sum = store.streams.hash_get("h", "sum").await.expect("the sum");
    assert_eq!(sum, Some((WRITERS * EACH).to_string()));
}

pub(super) async fn a_hash_that_needs_no_change_is_left_alone(store: Store) {
    let mut seen = Vec::new();
    let mut nothing = |hash: &HashMap<String, String>| {
        seen.push(hash.len());
        Vec::new()
    };
    assert_eq!(
        store
            .streams
            .hash_update("h", &mut nothing)
            .await
            .expect("an answer"),
        []
    );
    assert_eq!(seen, [0]);
    assert_eq!(
        store.streams.exist(&keys(&["h"])).await.expect("an answer"),
        [false]
    );
    // A field that is removed goes, and the hash with its last.
    store
        .streams
        .hash_set("h", "f", "1")
        .await
        .expect("a change");
    let mut remove = |_: &HashMap<String, String>| vec![HashChange::Remove("f".to_owned())];
    let written = store
        .streams
        .hash_update("h", &mut remove)
        .await
        .expect("an answer");
    assert_eq!(written, [HashChange::Remove("f".to_owned())]);
    assert_eq!(
        store.streams.exist(&keys(&["h"])).await.expect("an answer"),
        [false]
    );
}

pub(super) async fn keys_are_answered_in_order(store: Store) {
    store.raw::<()>(&["SET", "a", "1"]).await;
    store.raw::<()>(&["SET", "c", "\u{0}3"]).await;
    store.add("s", "x").await;
    let values = store
        .streams
        .get_many(&keys(&["c", "b", "a", "a", "s"]))
        .await
        .expect("values");
    let one = || Some(Bytes::from_static(b"1"));
    assert_eq!(
        values,
        [Some(Bytes::from_static(b"\x003")), None, one(), one(), None]
    );
    assert_eq!(
        store
            .streams
            .exist(&keys(&["s", "b", "a", "a"]))
            .await
            .expect("answers"),
        [true, false, true, true]
    );
    assert_eq!(
        store.streams.get_many(&[]).await.expect("no values"),
        Vec::<Option<Bytes>>::new()
    );
    assert_eq!(
        store.streams.exist(&[]).await.expect("no answers"),
        Vec::<bool>::new()
    );
    let many: Vec<Key> = (0..2500)
        .map(|number| Key::from(format!("a{number}")))
        .chain(keys(&["a"]))
        .collect();
    assert_eq!(
        store
            .streams
            .exist(&many)
            .await
            .expect("answers")
            .iter()
            .filter(|there| **there)
            .count(),
        1
    );
    assert_eq!(
        store.streams.get_many(&many).await.expect("values").last(),
        Some(&one())
    );
}

pub(super) async fn streams_are_found_by_pattern(store: Store) {
    for stream in ["one:in", "two:in", "one:out", "[x]:in", "\\:in", "x:in"] {
        store.add(stream, "x").await;
    }
    store.raw::<()>(&["SET", "text:in", "I am no stream"]).await;
    let found = async |pattern: &str| {
        let mut found = store.streams.scan(pattern).await.expect("a scan");
        found.sort();
        found
    };
    assert_eq!(
        found("*:in").await,
        ["[x]:in", "\\:in", "one:in", "two:in", "x:in"]
    );
    assert_eq!(found("one:*").await, ["one:in", "one:out"]);
    assert_eq!(found("?:in").await, ["\\:in", "x:in"]);
    assert_eq!(found("[x]:in").await, ["[x]:in"]);
    assert_eq!(found("\\:*").await, ["\\:in"]);
    assert_eq!(found("nothing").await, Vec::<String>::new());
}

pub(super) async fn a_stream_is_trimmed_to_about_what_is_kept(store: Store) {
    for number in 0..1000 {
        store.add("a", &number.to_string()).await;
    }
    store.streams.trim("a", 300).await.expect("a trim");
    let left = store.values("a").await;
    assert!((300..=500).contains(&left.len()), "{}", left.len());
    assert_eq!(left.last().map(String::as_str), Some("999"));
    store
        .streams
        .trim("nothing", 1)
        .await
        .expect("nothing to trim");
    assert_eq!(
        store
            .streams
            .exist(&keys(&["nothing"]))
            .await
            .expect("an answer"),
        [false]
    );
}

pub(super) async fn the_wrong_kind_of_key_is_refused_with_its_name(store: Store) {
    store.raw::<()>(&["SET", "text", "I am neither"]).await;
    let errors = [
        store
            .streams
            .append("text", fields(&[("a", "b")]))
            .await
            .map(|_| ()),
        store.streams.hash_all("text").await.map(|_| ()),
        store.streams.hash_set("text", "f", "1").await,
        store
            .streams
            .range("text", EntryId::ZERO, 1)
            .await
            .map(|_| ()),
        store
            .streams
            .hash_update("text", &mut |_| vec![HashChange::Remove("f".to_owned())])
            .await
            .map(|_| ()),
    ];
    for error in errors {
        match error {
            Err(StoreError::Refused { key, reason, .. }) => {
                assert_eq!(key, "text");
                assert!(reason.starts_with("WRONGTYPE"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(super) async fn a_store_that_answers_is_up(store: Store) {
    assert_eq!(store.streams.health().await, Health::Up);
}

pub(super) async fn what_a_group_has_not_acknowledged_is_never_trimmed(store: Store) {
    let streams = &store.streams;
    for number in 0..450 {
        store.add("a", &number.to_string()).await;
    }
    let trim = async |keep, most| {
        let trimmed = streams.trim_acknowledged("a", "g", keep, most).await;
        let trimmed = trimmed.expect("an answer");
        assert_eq!(store.all("a").await.len() as u64, keep + trimmed.beyond);
        trimmed
    };
    // Without the group nobody knows what was handled.
    let (nothing, slowest) = (0, "g".to_owned());
    let unread = trim(100, 1000).await;
    assert_eq!((unread.removed, &unread.slowest), (nothing, &slowest));
    let mut reader = store.reader_with(&["a"], |options| {
        options.group = "g".into();
        options.count = 1000;
    });
    let batch = read(&mut *reader, 450).await;
    let unacknowledged = trim(100, 1000).await;
    assert_eq!((unacknowledged.removed, unacknowledged.beyond), (0, 350));
    // All but one in the middle.
    let acknowledge = |entries: &[crossway_transport::streams::Read]| {
        let settlements = entries.iter().map(bare);
        settlements.collect::<Vec<_>>()
    };
    let (mut done, kept) = (batch.entries.clone(), batch.entries[250].clone());
    done.remove(250);
    settle(&mut *reader, acknowledge(&done))
        .await
        .expect("an answer");
    let limited = trim(100, 100).await;
    assert!((1..=100).contains(&limited.removed), "{limited:?}");
    let held = trim(100, 1000).await;
    assert_eq!(held.slowest, "g");
    let left = store.values("a").await;
    assert!(
        left.contains(&"250".to_owned()) && left.len() <= 300,
        "{}",
        left.len()
    );
    settle(&mut *reader, acknowledge(&[kept]))
        .await
        .expect("an answer");
    trim(100, 1000).await;
    let left = store.values("a").await;
    assert!((100..=200).contains(&left.len()), "{}", left.len());
    assert_eq!(left.last().map(String::as_str), Some("449"));
    let absent = streams.trim_acknowledged("nothing", "g", 1, 1).await;
    assert_eq!(absent.expect("an answer").removed, 0);
}
