//! What a reader promises about more streams than a service has keys.

use std::collections::HashMap;

use crossway_transport::streams::{Key, Settled};

use crate::store::{DEADLINE, Store, bare, read, said, settle};

const STREAMS: usize = 900;

fn streams(range: std::ops::Range<usize>) -> Vec<Key> {
    range
        .map(|number| Key::from(format!("s{number}")))
        .collect()
}

pub(super) async fn many_streams_are_each_read_once_and_in_order(store: Store) {
    let mut reader = store.reader(&[]);
    reader.assign(streams(0..STREAMS));
    let mut written: HashMap<usize, usize> = HashMap::new();
    let mut expected: HashMap<String, Vec<String>> = HashMap::new();
    let mut given: HashMap<String, Vec<String>> = HashMap::new();
    for round in 0..12 {
        // The first streams leave and come back, and others wake up in their stead.
        let assigned = if round % 4 < 2 {
            0..STREAMS
        } else {
            300..STREAMS
        };
        reader.assign(streams(assigned.clone()));
        let mut entries = 0;
        for step in 0..40 {
            let stream = assigned.start + (round / 2 * 131 + step * 37) % assigned.len();
            for _ in 0..=step % 2 {
                let number = written.entry(stream).or_default();
                store.add(&format!("s{stream}"), &number.to_string()).await;
                expected
                    .entry(format!("s{stream}"))
                    .or_default()
                    .push(number.to_string());
                *number += 1;
                entries += 1;
            }
        }
        let batch = read(&mut *reader, entries).await;
        for said in said(&batch.entries) {
            let (stream, number) = said.split_once('=').expect("a stream and a value");
            given
                .entry(stream.to_owned())
                .or_default()
                .push(number.to_owned());
        }
        let settled = settle(&mut *reader, batch.entries.iter().map(bare).collect())
            .await
            .expect("an answer");
        assert_eq!(settled, vec![Settled::Done; entries]);
    }
    assert_eq!(given, expected);
    assert!(reader.read().await.expect("a read").entries.is_empty());
}

pub(super) async fn a_busy_stream_does_not_silence_the_others(store: Store) {
    let mut reader = store.reader_with(&[], |options| options.count = 1);
    reader.assign(streams(0..STREAMS));
    store.add("s0", "0").await;
    let mut last = format!("s{}", STREAMS - 1);
    store.add(&last, "x").await;
    last.push_str("=x");
    // There is always another entry of the busy one.
    let heard = async {
        loop {
            store.add("s0", "more").await;
            store.add("s0", "more").await;
            let batch = reader.read().await.expect("a read");
            if said(&batch.entries).contains(&last) {
                return;
            }
            settle(&mut *reader, batch.entries.iter().map(bare).collect())
                .await
                .expect("an answer");
        }
    };
    tokio::time::timeout(DEADLINE, heard)
        .await
        .expect("the other one is heard");
}
