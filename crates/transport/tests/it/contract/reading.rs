//! What a reader promises.

use std::time::Duration;

use crossway_core::entry::Fields;
use crossway_transport::streams::{Batch, GroupReader, ReadEntry, Settled};

use crate::store::{DEADLINE, ENDLESS, Store, bare, fields, keys, read, read_until, said, settle};

pub(super) async fn pending_entries_come_first_and_in_order(store: Store) {
    for value in ["1", "2", "3", "4", "5"] {
        store.add("a", value).await;
    }
    let mut first = store.reader_with(&["a"], |options| options.count = 2);
    let batch = read(&mut *first, 5).await;
    settle(
        &mut *first,
        vec![bare(&batch.entries[0]), bare(&batch.entries[2])],
    )
    .await
    .expect("an answer");
    drop(first);
    store.add("a", "6").await;
    let mut second = store.reader_with(&["a"], |options| options.count = 2);
    assert_eq!(
        said(&read(&mut *second, 4).await.entries),
        ["a=2", "a=4", "a=5", "a=6"]
    );
}

pub(super) async fn what_another_consumer_of_the_group_held_is_inherited_in_order(store: Store) {
    for value in ["1", "2", "3", "4"] {
        store.add("a", value).await;
    }
    let mut gone = store.reader_with(&["a"], |options| {
        options.consumer = "gone".into();
        options.count = 2;
    });
    let batch = read(&mut *gone, 2).await;
    settle(&mut *gone, vec![bare(&batch.entries[0])])
        .await
        .expect("an answer");
    drop(gone);
    let mut heir = store.reader(&["a"]);
    let batch = read(&mut *heir, 3).await;
    assert_eq!(said(&batch.entries), ["a=2", "a=3", "a=4"]);
    let settled = settle(&mut *heir, batch.entries.iter().map(bare).collect()).await;
    assert_eq!(settled.expect("an answer"), [const { Settled::Done }; 3]);
}

pub(super) async fn pending_entries_come_again_after_a_rewind(store: Store) {
    for value in ["1", "2", "3"] {
        store.add("a", value).await;
    }
    let mut reader = store.reader(&["a"]);
    let batch = read(&mut *reader, 3).await;
    // The settlement may have sent the next read already.
    settle(&mut *reader, vec![bare(&batch.entries[1])])
        .await
        .expect("an answer");
    store.add("a", "4").await;
    reader.rewind();
    assert_eq!(
        said(&read(&mut *reader, 3).await.entries),
        ["a=1", "a=3", "a=4"]
    );
}

pub(super) async fn a_read_takes_no_more_than_its_count_from_a_stream(store: Store) {
    for number in 0..7 {
        store.add("a", &number.to_string()).await;
        store.add("b", &number.to_string()).await;
    }
    let mut reader = store.reader_with(&["a", "b"], |options| options.count = 3);
    let mut values = Vec::new();
    while values.len() < 14 {
        let batch = reader.read().await.expect("a read");
        let from_a = batch
            .entries
            .iter()
            .filter(|read| &*read.stream == "a")
            .count();
        assert!(
            from_a <= 3 && batch.entries.len() - from_a <= 3,
            "{batch:?}"
        );
        values.extend(said(&batch.entries));
    }
    for stream in ["a", "b"] {
        let got: Vec<&String> = values
            .iter()
            .filter(|value| value.starts_with(stream))
            .collect();
        let expected: Vec<String> = (0..7).map(|number| format!("{stream}={number}")).collect();
        assert_eq!(got, expected.iter().collect::<Vec<_>>());
    }
}

pub(super) async fn a_read_without_news_is_empty(store: Store) {
    let mut reader = store.reader(&["a"]);
    for _ in 0..3 {
        let batch = tokio::time::timeout(DEADLINE, reader.read())
            .await
            .expect("an answer in time")
            .expect("a read");
        assert!(batch.entries.is_empty(), "{batch:?}");
        assert!(batch.remade.is_empty(), "{batch:?}");
    }
}

pub(super) async fn a_waiting_read_hears_of_a_new_entry(store: Store) {
    let mut reader = store.reader_with(&["a", "b"], |options| options.block = ENDLESS);
    let (batch, _) = tokio::join!(read(&mut *reader, 1), store.add("b", "x"));
    assert_eq!(said(&batch.entries), ["b=x"]);
}

/// Interrupts until the read that `reader` waits in has ended.
async fn interrupted(mut reader: Box<dyn GroupReader>) -> (Box<dyn GroupReader>, Batch) {
    let interrupt = reader.interrupter();
    let mut waiting = tokio::spawn(async move {
        let batch = reader.read().await.expect("a read");
        (reader, batch)
    });
    let ended = async {
        loop {
            interrupt.interrupt().await;
            if let Ok(ended) = tokio::time::timeout(Duration::from_millis(20), &mut waiting).await {
                return ended.expect("the task ends well");
            }
        }
    };
    tokio::time::timeout(DEADLINE, ended)
        .await
        .expect("the read ends when it is interrupted")
}

pub(super) async fn a_stream_assigned_while_a_read_waits_is_read_after_an_interrupt(store: Store) {
    store.add("a", "1").await;
    let mut reader = store.reader_with(&["a"], |options| options.block = ENDLESS);
    let batch = read(&mut *reader, 1).await;
    settle(&mut *reader, batch.entries.iter().map(bare).collect())
        .await
        .expect("an answer");
    store.add("b", "1").await;
    let (mut reader, _) = interrupted(reader).await;
    reader.assign(keys(&["a", "b"]));
    assert_eq!(said(&read(&mut *reader, 1).await.entries), ["b=1"]);
    store.add("a", "2").await;
    assert_eq!(said(&read(&mut *reader, 1).await.entries), ["a=2"]);
}

pub(super) async fn a_reader_without_streams_waits_for_an_assignment(store: Store) {
    store.add("a", "1").await;
    let reader = store.reader_with(&[], |options| options.block = ENDLESS);
    let (mut reader, batch) = interrupted(reader).await;
    assert!(batch.entries.is_empty());
    reader.assign(keys(&["a"]));
    assert_eq!(said(&read(&mut *reader, 1).await.entries), ["a=1"]);
}

pub(super) async fn streams_that_stay_keep_their_place(store: Store) {
    for stream in ["a", "b", "c"] {
        store.add(stream, "1").await;
    }
    let mut reader = store.reader(&["a", "b"]);
    let first = read(&mut *reader, 2).await;
    settle(
        &mut *reader,
        first
            .entries
            .iter()
            .filter(|read| &*read.stream == "b")
            .map(bare)
            .collect(),
    )
    .await
    .expect("an answer");
    // The entry of `a` isn't settled, and isn't given again; `b` is left.
    reader.assign(keys(&["c", "a"]));
    store.add("b", "2").await;
    store.add("a", "2").await;
    let mut values = said(&read(&mut *reader, 2).await.entries);
    values.sort();
    assert_eq!(values, ["a=2", "c=1"]);
    // Whoever comes back is given what is pending, then what is new.
    reader.assign(keys(&["b"]));
    assert_eq!(said(&read(&mut *reader, 1).await.entries), ["b=2"]);
}

pub(super) async fn a_change_is_told_no_later_than_what_follows(store: Store) {
    let mut reader = store.reader_with(&["a"], |options| {
        options.watched = keys(&["rules", "rules:more", "other"]);
        options.block = ENDLESS;
    });
    store.add("a", "first").await;
    read(&mut *reader, 1).await;
    for round in 0..60 {
        let key = ["rules", "rules:more", "other"][round % 3];
        let writing = async {
            match round % 4 {
                0 => store
                    .streams
                    .hash_set(key, "f", &round.to_string())
                    .await
                    .expect("a change"),
                1 => store.raw::<()>(&["DEL", key]).await,
                2 => store.raw::<()>(&["HSET", key, "f", "x"]).await,
                _ => store
                    .streams
                    .hash_remove(key, "f")
                    .await
                    .map(|_| ())
                    .expect("a change"),
            }
            store
                .streams
                .hash_set(key, "round", &round.to_string())
                .await
                .expect("a change");
            store.add("a", &round.to_string()).await
        };
        // What the read before may have told late doesn't count.
        let (batch, _) = tokio::join!(read(&mut *reader, 1), writing);
        assert!(batch.changed, "round {round}");
        settle(&mut *reader, batch.entries.iter().map(bare).collect())
            .await
            .expect("an answer");
    }
}

pub(super) async fn a_change_is_told_to_a_reader_without_streams(store: Store) {
    let mut reader = store.reader_with(&[], |options| options.watched = keys(&["rules"]));
    // The first reads may tell of a change that nobody made, to be on the safe side.
    while reader.read().await.expect("a batch").changed {}
    store.raw::<()>(&["HSET", "rules", "a:b", "deny"]).await;
    read_until(&mut *reader, "the change", |batch| batch.changed).await;
}

pub(super) async fn a_change_of_another_key_is_not_told(store: Store) {
    let mut reader = store.reader_with(&["a"], |options| options.watched = keys(&["rules"]));
    store.add("a", "first").await;
    read(&mut *reader, 1).await;
    store
        .streams
        .hash_set("rules:more", "f", "1")
        .await
        .expect("a change");
    store
        .streams
        .hash_set("rule", "f", "1")
        .await
        .expect("a change");
    store.add("a", "second").await;
    assert!(!read(&mut *reader, 1).await.changed);
}

pub(super) async fn a_group_that_vanished_is_made_again(store: Store) {
    store.add("a", "1").await;
    store.add("b", "1").await;
    let mut reader = store.reader(&["a", "b", "c"]);
    let batch = read(&mut *reader, 2).await;
    settle(&mut *reader, batch.entries.iter().map(bare).collect())
        .await
        .expect("an answer");
    store.raw::<()>(&["DEL", "a"]).await;
    store.raw::<()>(&["XGROUP", "DESTROY", "b", "relay"]).await;
    store.add("a", "2").await;
    let batch = read_until(
        &mut *reader,
        "two groups made again and all their entries",
        |batch| batch.remade.len() >= 2 && batch.entries.len() >= 2,
    )
    .await;
    let mut remade: Vec<&str> = batch.remade.iter().map(|key| &**key).collect();
    remade.sort_unstable();
    assert_eq!(remade, ["a", "b"]);
    let mut values = said(&batch.entries);
    values.sort();
    assert_eq!(values, ["a=2", "b=1"]);
    assert_eq!(
        settle(&mut *reader, vec![bare(&batch.entries[0])])
            .await
            .expect("an answer"),
        [Settled::Done]
    );
}

pub(super) async fn a_stream_deleted_while_a_read_waits_is_made_again(store: Store) {
    store.add("a", "1").await;
    let mut reader =
        store.reader_with(&["a"], |options| options.block = Duration::from_millis(300));
    let batch = read(&mut *reader, 1).await;
    settle(&mut *reader, vec![bare(&batch.entries[0])])
        .await
        .expect("an answer");
    let deleting = async {
        store.raw::<()>(&["DEL", "a"]).await;
        store.add("a", "2").await;
    };
    let again = read_until(&mut *reader, "an entry of a group made again", |batch| {
        !batch.remade.is_empty() && !batch.entries.is_empty()
    });
    let (batch, ()) = tokio::join!(again, deleting);
    assert_eq!(
        (said(&batch.entries), batch.remade),
        (vec!["a=2".to_owned()], keys(&["a"]))
    );
}

pub(super) async fn a_key_that_is_no_stream_does_not_stop_the_others(store: Store) {
    store.raw::<()>(&["SET", "text", "I am no stream"]).await;
    store.add("a", "1").await;
    let mut reader = store.reader(&["text", "a"]);
    let batch = read_until(
        &mut *reader,
        "an entry and a key that is no stream",
        |batch| !batch.entries.is_empty() && !batch.not_streams.is_empty(),
    )
    .await;
    assert_eq!(
        (said(&batch.entries), batch.not_streams),
        (vec!["a=1".to_owned()], keys(&["text"]))
    );
    let text: String = store.raw(&["GET", "text"]).await;
    assert_eq!(text, "I am no stream");
    // Once it is one, it is read.
    store.raw::<()>(&["DEL", "text"]).await;
    store.add("text", "1").await;
    assert_eq!(said(&read(&mut *reader, 1).await.entries), ["text=1"]);
}

pub(super) async fn a_stream_that_became_something_else_is_left_out(store: Store) {
    store.add("a", "1").await;
    store.add("b", "1").await;
    let mut reader = store.reader(&["a", "b"]);
    let batch = read(&mut *reader, 2).await;
    settle(&mut *reader, batch.entries.iter().map(bare).collect())
        .await
        .expect("an answer");
    store.raw::<()>(&["DEL", "a"]).await;
    store
        .raw::<()>(&["SET", "a", "I am no stream any more"])
        .await;
    store.add("b", "2").await;
    let batch = read_until(
        &mut *reader,
        "an entry and a key that is no stream",
        |batch| !batch.entries.is_empty() && !batch.not_streams.is_empty(),
    )
    .await;
    assert_eq!(said(&batch.entries), ["b=2"]);
    assert_eq!(batch.not_streams[0], keys(&["a"])[0]);
}

pub(super) async fn an_entry_over_the_limits_is_told_and_stays(store: Store) {
    let long = "x".repeat(200_000);
    let big = fields(&[("t", "c"), ("p", &long), ("_rt", "billing")]);
    store.add("a", "1").await;
    let at = store
        .streams
        .append("a", big.clone())
        .await
        .expect("an entry");
    store.add("a", "2").await;
    let mut reader = store.reader_with(&["a"], |options| options.max_entry_bytes = 1000);
    let batch = read(&mut *reader, 3).await;
    assert_eq!(
        said(&[batch.entries[0].clone(), batch.entries[2].clone()]),
        ["a=1", "a=2"]
    );
    let ReadEntry::Oversize {
        id: told,
        bytes,
        fields: count,
        head,
    } = &batch.entries[1].entry
    else {
        panic!("{batch:?}");
    };
    assert_eq!((*told, *bytes, *count), (at, big.size() as u64, 3));
    assert_eq!(*head, fields(&[("t", "c"), ("_rt", "billing")]));
    assert_eq!(store.pending("a").await, 3);
    assert_eq!(store.all("a").await[1].fields, big);
    assert_eq!(
        settle(&mut *reader, vec![bare(&batch.entries[1])])
            .await
            .expect("an answer"),
        [Settled::Done]
    );
    assert_eq!(store.pending("a").await, 2);
}

pub(super) async fn an_entry_of_too_many_fields_is_told_and_stays(store: Store) {
    let many: Fields = (0..20).map(|number| (format!("n{number}"), "v")).collect();
    let few: Fields = many.iter().take(5).cloned().collect();
    store
        .streams
        .append("a", many.clone())
        .await
        .expect("an entry");
    store
        .streams
        .append("a", few.clone())
        .await
        .expect("an entry");
    let mut reader = store.reader_with(&["a"], |options| options.max_fields = 5);
    let batch = read(&mut *reader, 2).await;
    let (
        ReadEntry::Oversize {
            fields: count,
            head,
            bytes,
            ..
        },
        ReadEntry::Whole(whole),
    ) = (&batch.entries[0].entry, &batch.entries[1].entry)
    else {
        panic!("{batch:?}");
    };
    assert_eq!((*count, head, *bytes), (20, &few, many.size() as u64));
    assert_eq!(whole.fields, few);
    assert_eq!(store.pending("a").await, 2);
}

pub(super) async fn a_deleted_pending_entry_is_gone(store: Store) {
    let deleted = store.add("a", "1").await;
    store.add("a", "2").await;
    let mut reader = store.reader(&["a"]);
    read(&mut *reader, 2).await;
    store.raw::<()>(&["XTRIM", "a", "MAXLEN", "1"]).await;
    reader.rewind();
    let batch = read(&mut *reader, 2).await;
    assert!(
        matches!(batch.entries[0].entry, ReadEntry::Gone(id) if id == deleted),
        "{batch:?}"
    );
    assert_eq!(said(&batch.entries[1..]), ["a=2"]);
    let settled = settle(&mut *reader, batch.entries.iter().map(bare).collect())
        .await
        .expect("an answer");
    assert_eq!(settled, vec![Settled::Done; 2]);
}
