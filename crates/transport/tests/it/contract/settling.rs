//! What a settlement promises.

use std::time::Duration;

use bytes::Bytes;
use crossway_core::entry::Fields;
use crossway_transport::streams::{Append, Fence, ReadEntry, Settled, Settlement, StoreError};

use crate::store::{Store, bare, fence, fields, forward, keys, put, read, said, settle};

pub(super) async fn a_settlement_happens_as_a_whole(store: Store) {
    store.raw::<()>(&["SET", "ticket", "1"]).await;
    store.add("a", "x").await;
    let mut reader = store.reader(&["a"]);
    let batch = read(&mut *reader, 1).await;
    let appends = ["b", "a"].map(|stream| Append {
        stream: stream.into(),
        fields: fields(&[("v", stream), ("w", "")]),
    });
    let settlement = Settlement {
        consume: Some("ticket".into()),
        appends: appends.to_vec(),
        puts: vec![put("record", "kept")],
        ..bare(&batch.entries[0])
    };
    assert_eq!(
        settle(&mut *reader, vec![settlement])
            .await
            .expect("an answer"),
        [Settled::Done]
    );
    assert_eq!(
        store.all("b").await[0].fields,
        fields(&[("v", "b"), ("w", "")])
    );
    assert_eq!(store.values("a").await, ["x", "a"]);
    assert_eq!(
        store
            .streams
            .get_many(&keys(&["record", "ticket"]))
            .await
            .expect("values"),
        [Some(Bytes::from_static(b"kept")), None]
    );
    let lifetime: i64 = store.raw(&["TTL", "record"]).await;
    assert!((1..=60).contains(&lifetime), "{lifetime}");
    assert_eq!(said(&read(&mut *reader, 1).await.entries), ["a=a"]);
    assert_eq!(store.pending("a").await, 1);
}

pub(super) async fn a_refused_append_leaves_nothing_behind(store: Store) {
    store.raw::<()>(&["SET", "text", "I am no stream"]).await;
    store.raw::<()>(&["SET", "ticket", "1"]).await;
    for value in ["1", "2", "3"] {
        store.add("a", value).await;
    }
    let mut reader = store.reader(&["a"]);
    let batch = read(&mut *reader, 3).await;
    let refused = Settlement {
        consume: Some("ticket".into()),
        appends: ["b", "text", "c"]
            .map(|stream| Append {
                stream: stream.into(),
                fields: fields(&[("v", "stray")]),
            })
            .to_vec(),
        puts: vec![put("record", "stray")],
        ..bare(&batch.entries[1])
    };
    let settlements = vec![
        forward(&batch.entries[0], "b", "1"),
        refused,
        forward(&batch.entries[2], "b", "3"),
    ];
    let settled = settle(&mut *reader, settlements).await.expect("an answer");
    assert!(
        matches!(&settled[1], Settled::Failed(words) if words.starts_with("WRONGTYPE")),
        "{settled:?}"
    );
    assert_eq!((&settled[0], &settled[2]), (&Settled::Done, &Settled::Done));
    assert_eq!(store.values("b").await, ["1", "3"]);
    assert_eq!(store.values("c").await, Vec::<String>::new());
    assert_eq!(
        store
            .streams
            .exist(&keys(&["record", "ticket"]))
            .await
            .expect("an answer"),
        [false, true]
    );

    // It is still pending, and can be settled in another way.
    reader.rewind();
    let again = read(&mut *reader, 1).await;
    assert_eq!(said(&again.entries), ["a=2"]);
    let settled = settle(&mut *reader, vec![forward(&again.entries[0], "b", "2")]).await;
    assert_eq!(settled.expect("an answer"), [Settled::Done]);
    assert_eq!(store.pending("a").await, 0);
}

pub(super) async fn a_second_settlement_does_nothing(store: Store) {
    store.raw::<()>(&["SET", "ticket", "1"]).await;
    store.add("a", "x").await;
    let mut reader = store.reader(&["a"]);
    let batch = read(&mut *reader, 1).await;
    let settlement = Settlement {
        puts: vec![put("record", "1")],
        ..forward(&batch.entries[0], "b", "once")
    };
    assert_eq!(
        settle(&mut *reader, vec![settlement.clone()])
            .await
            .expect("an answer"),
        [Settled::Done]
    );
    store.raw::<()>(&["DEL", "record"]).await;
    let second = Settlement {
        consume: Some("ticket".into()),
        ..settlement
    };
    assert_eq!(
        settle(&mut *reader, vec![second]).await.expect("an answer"),
        [Settled::NotPending]
    );
    assert_eq!(store.values("b").await, ["once"]);
    assert_eq!(
        store
            .streams
            .exist(&keys(&["record", "ticket"]))
            .await
            .expect("an answer"),
        [false, true]
    );
}

pub(super) async fn a_bare_settlement_is_told_from_one_that_came_before(store: Store) {
    for value in ["1", "2", "3"] {
        store.add("a", value).await;
        store.add("b", value).await;
    }
    let mut reader = store.reader(&["a", "b"]);
    let entries = read(&mut *reader, 6).await.entries;
    assert_eq!(
        settle(&mut *reader, vec![bare(&entries[1])])
            .await
            .expect("an answer"),
        [Settled::Done]
    );
    let again = settle(&mut *reader, vec![bare(&entries[1])]).await;
    assert_eq!(again.expect("an answer"), [Settled::NotPending]);
    // Among others it may pass for done, but it hides none of them.
    let settled = settle(&mut *reader, entries.iter().map(bare).collect())
        .await
        .expect("an answer");
    assert!(
        settled
            .iter()
            .enumerate()
            .all(|(at, settled)| at == 1 || *settled == Settled::Done),
        "{settled:?}"
    );
    assert_eq!((store.pending("a").await, store.pending("b").await), (0, 0));
}

pub(super) async fn nothing_is_written_without_the_fence(store: Store) {
    store.add("a", "x").await;
    let mut reader = store.reader(&["a"]);
    let batch = read(&mut *reader, 1).await;
    let fences = [
        Fence {
            value: "2".to_owned(),
            ..fence()
        },
        Fence {
            field: "nobody".to_owned(),
            ..fence()
        },
        Fence {
            key: "nothing".into(),
            ..fence()
        },
    ];
    for fence in fences {
        let settlements = vec![
            Settlement {
                puts: vec![put("record", "1")],
                ..forward(&batch.entries[0], "b", "x")
            },
            bare(&batch.entries[0]),
        ];
        let refused = reader.settle(&fence, settlements).await;
        assert!(matches!(refused, Err(StoreError::Fenced)), "{refused:?}");
    }
    assert_eq!(
        store
            .streams
            .exist(&keys(&["b", "record"]))
            .await
            .expect("an answer"),
        [false, false]
    );
    assert_eq!(store.pending("a").await, 1);
    // The one who holds the membership can still settle it.
    assert_eq!(
        settle(&mut *reader, vec![bare(&batch.entries[0])])
            .await
            .expect("an answer"),
        [Settled::Done]
    );
}

pub(super) async fn a_key_is_consumed_once(store: Store) {
    store.raw::<()>(&["SET", "ticket", "1"]).await;
    store.add("a", "1").await;
    store.add("a", "2").await;
    let mut reader = store.reader(&["a"]);
    let batch = read(&mut *reader, 2).await;
    let consuming = |at: usize| Settlement {
        consume: Some("ticket".into()),
        ..forward(&batch.entries[at], "b", "answer")
    };
    let settled = settle(&mut *reader, vec![consuming(0), consuming(1)])
        .await
        .expect("an answer");
    assert_eq!(settled, [Settled::Done, Settled::Unmet]);
    assert_eq!(store.values("b").await, ["answer"]);
    assert_eq!(store.pending("a").await, 1);
}

pub(super) async fn settlements_keep_their_order(store: Store) {
    const ENTRIES: usize = 600;
    for number in 0..ENTRIES {
        store.add("a", &number.to_string()).await;
    }
    let mut reader = store.reader_with(&["a"], |options| options.count = 1000);
    let batch = read(&mut *reader, ENTRIES).await;
    let settlements = batch
        .entries
        .iter()
        .enumerate()
        .map(|(at, read)| forward(read, "b", &at.to_string()))
        .collect();
    let settled = settle(&mut *reader, settlements).await.expect("an answer");
    assert_eq!(settled, vec![Settled::Done; ENTRIES]);
    let expected: Vec<String> = (0..ENTRIES).map(|number| number.to_string()).collect();
    assert_eq!(store.values("b").await, expected);
}

pub(super) async fn a_long_value_is_handed_over_unchanged(store: Store) {
    let long: Vec<u8> = (0..3_000_000_u32)
        .map(|at| u8::try_from(at % 251).expect("less than 256"))
        .collect();
    for _ in 0..2 {
        let fields: Fields = [("p", long.clone())].into_iter().collect();
        store.streams.append("a", fields).await.expect("an entry");
    }
    let mut reader = store.reader(&["a"]);
    let batch = read(&mut *reader, 2).await;
    let settlements = batch.entries.iter().map(|read| match &read.entry {
        ReadEntry::Whole(entry) => Settlement {
            appends: vec![Append {
                stream: "b".into(),
                fields: entry.fields.clone(),
            }],
            ..bare(read)
        },
        other => panic!("{other:?}"),
    });
    let settled = settle(&mut *reader, settlements.collect())
        .await
        .expect("an answer");
    assert_eq!(settled, [Settled::Done, Settled::Done]);
    for entry in store.all("b").await {
        assert!(entry.fields.get(b"p").is_some_and(|value| *value == long));
    }
}

pub(super) async fn what_was_read_is_handed_over_byte_for_byte(store: Store) {
    let mut odd = Fields::default();
    for (name, value) in [
        ("n", "1"),
        ("n", "2"),
        ("", ""),
        ("b", "\r\n$5\r\n"),
        ("n", "1"),
    ] {
        odd.push(
            Bytes::from_static(name.as_bytes()),
            Bytes::from_static(value.as_bytes()),
        );
    }
    let all_bytes: Vec<u8> = (0..=255).collect();
    odd.push(all_bytes.clone(), all_bytes);
    store
        .streams
        .append("a", odd.clone())
        .await
        .expect("an entry");
    let mut reader = store.reader(&["a"]);
    let batch = read(&mut *reader, 1).await;
    let ReadEntry::Whole(entry) = &batch.entries[0].entry else {
        panic!("{batch:?}")
    };
    assert_eq!(entry.fields, odd);
    let settlement = Settlement {
        appends: vec![Append {
            stream: "b".into(),
            fields: odd.clone(),
        }],
        ..bare(&batch.entries[0])
    };
    assert_eq!(
        settle(&mut *reader, vec![settlement])
            .await
            .expect("an answer"),
        [Settled::Done]
    );
    assert_eq!(store.all("b").await[0].fields, odd);
    // Nothing came that wasn't sent.
    assert!(
        tokio::time::timeout(Duration::from_secs(5), reader.read())
            .await
            .expect("a read in time")
            .expect("a read")
            .entries
            .is_empty()
    );
}
