//! What was acknowledged survives the end of the process.
//!
//! The process that ends is this test binary, run again for [`the_process_that_is_killed`] alone.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossway_core::entry::{EntryId, Fields};
use crossway_transport::streams::embedded::{Embedded, EmbeddedOptions, Sync};
use crossway_transport::streams::{
    Append, Fence, GroupReader, Key, ReadEntry, ReaderOptions, Settled, Settlement, Streams,
};

const DIR: &str = "CROSSWAY_TEST_DIR";
const JOB: &str = "CROSSWAY_TEST_JOB";

fn open(dir: &Path, sync: Sync) -> Arc<Embedded> {
    Embedded::open(EmbeddedOptions {
        dir: dir.to_owned(),
        sync,
    })
    .unwrap()
}

fn number(value: u64) -> Fields {
    Fields::from_iter([(Bytes::from_static(b"n"), Bytes::from(value.to_string()))])
}

fn number_of(fields: &Fields) -> u64 {
    std::str::from_utf8(fields.get(b"n").unwrap())
        .unwrap()
        .parse()
        .unwrap()
}

async fn numbers(store: &Embedded, stream: &str) -> Vec<u64> {
    let entries = store
        .range(stream, EntryId::ZERO, usize::MAX)
        .await
        .unwrap();
    entries
        .iter()
        .map(|entry| number_of(&entry.fields))
        .collect()
}

fn fence() -> Fence {
    Fence {
        key: "members".into(),
        field: "me".to_owned(),
        value: "1".to_owned(),
    }
}

fn reader(store: &Embedded) -> Box<dyn GroupReader> {
    let mut reader = store.reader(ReaderOptions {
        group: "g".into(),
        consumer: "c".into(),
        count: 7,
        block: Duration::from_millis(1),
        max_entry_bytes: 1 << 20,
        max_fields: 100,
        watched: Vec::new(),
    });
    reader.assign(vec!["in".into()]);
    reader
}

/// Moves what a read gives from `in` to `out`; gives the numbers.
async fn move_some(reader: &mut dyn GroupReader) -> Vec<u64> {
    let out: Key = "out".into();
    let batch = reader.read().await.unwrap();
    let mut moved = Vec::new();
    let mut settlements = Vec::new();
    for read in batch.entries {
        let ReadEntry::Whole(entry) = read.entry else {
            panic!("an entry is gone")
        };
        moved.push(number_of(&entry.fields));
        let appends = vec![Append {
            stream: Arc::clone(&out),
            fields: entry.fields.clone(),
        }];
        settlements.push(Settlement {
            appends,
            ..Settlement::acknowledge(read.stream, entry.id)
        });
    }
    let settled = reader.settle(&fence(), settlements).await.unwrap();
    assert!(
        settled.iter().all(|settled| *settled == Settled::Done),
        "{settled:?}"
    );
    moved
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // One write for each line, so that one that is cut off isn't taken for whole.
    out.write_all(format!("\n@{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Writes for ever, and says what was acknowledged.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by the other tests, in a process of its own"]
async fn the_process_that_is_killed() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let job = std::env::var(JOB).unwrap();
    let sync = if job.contains("always") {
        Sync::Always
    } else {
        Sync::EverySecond
    };
    let store = open(Path::new(&dir), sync);
    if job.starts_with("full") {
        for value in 0.. {
            match store.append("s", number(value)).await {
                Ok(_) => say(&format!("s {value}")),
                Err(error) => {
                    say(&format!("refused {error}"));
                    let held = numbers(&store, "s").await;
                    assert_eq!(
                        held,
                        (0..value).collect::<Vec<_>>(),
                        "what was refused isn't there"
                    );
                    say("still readable");
                    say(&format!("{:?}", store.health().await));
                    // As when somebody makes room.
                    let room = rustix::process::Rlimit {
                        current: None,
                        maximum: None,
                    };
                    rustix::process::setrlimit(rustix::process::Resource::Fsize, room).unwrap();
                    store.append("s", number(value)).await.unwrap();
                    say(&format!("s {value}"));
                    say(&format!("{:?}", store.health().await));
                    return;
                }
            }
        }
    }
    if job.starts_with("compact") {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            loop {
                store.compact().await.unwrap();
            }
        });
    }
    for writer in 0..4 {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let stream = format!("s{writer}");
            for value in 0.. {
                store.append(&stream, number(value)).await.unwrap();
                say(&format!("{stream} {value}"));
            }
        });
    }
    let inward = Arc::clone(&store);
    tokio::spawn(async move {
        for value in 0.. {
            inward.append("in", number(value)).await.unwrap();
            say(&format!("in {value}"));
        }
    });
    store.hash_set("members", "me", "1").await.unwrap();
    let mut reader = reader(&store);
    loop {
        for value in move_some(reader.as_mut()).await {
            say(&format!("out {value}"));
        }
    }
}

fn start(dir: &Path, job: &str, through: &[&str]) -> Child {
    let this = std::env::current_exe().unwrap();
    let mut words = through
        .iter()
        .map(|word| (*word).to_owned())
        .collect::<Vec<_>>();
    words.push(this.display().to_string());
    let (program, rest) = words.split_first().unwrap();
    Command::new(program)
        .args(rest)
        .args([
            "--exact",
            "durability::the_process_that_is_killed",
            "--ignored",
            "--nocapture",
        ])
        .env(DIR, dir)
        .env(JOB, job)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// What the process has said, until `enough` of it; then it is killed, and the rest is heard too.
fn acknowledged_until_killed(mut child: Child, enough: usize) -> BTreeMap<String, Vec<u64>> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut count = 0;
    for line in lines {
        let line = line.unwrap();
        let Some((stream, value)) = line.strip_prefix('@').and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        said.entry(stream.to_owned())
            .or_default()
            .push(value.parse().unwrap());
        count += 1;
        if count == enough {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(
        count >= enough,
        "the process ended by itself after {count} lines"
    );
    said
}

async fn nothing_is_lost_or_doubled(job: &str, enough: usize) {
    let sync = if job.contains("always") {
        Sync::Always
    } else {
        Sync::EverySecond
    };
    let home = tempfile::tempdir().unwrap();
    let said = acknowledged_until_killed(start(home.path(), job, &[]), enough);
    let store = open(home.path(), sync);
    for (stream, values) in &said {
        let held = numbers(&store, stream).await;
        let all: Vec<u64> = (0..held.len() as u64).collect();
        assert_eq!(held, all, "{stream} holds each number once, in order");
        assert!(
            held.len() >= values.len(),
            "{stream} lost what was acknowledged"
        );
        assert!(
            values.iter().all(|value| held.contains(value)),
            "{stream} lost what was acknowledged"
        );
    }
    // What was on its way when the process ended arrives once, by the one who comes after.
    store.hash_set("members", "me", "1").await.unwrap();
    let mut reader = reader(&store);
    while !move_some(reader.as_mut()).await.is_empty() {}
    assert_eq!(numbers(&store, "out").await, numbers(&store, "in").await);
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    for round in 0..3 {
        nothing_is_lost_or_doubled("every-second", 400 + round * 700).await;
    }
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_with_a_sync_for_every_write() {
    for round in 0..3 {
        nothing_is_lost_or_doubled("always", 200 + round * 300).await;
    }
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_log_is_being_rewritten() {
    for round in 0..3 {
        nothing_is_lost_or_doubled("compact-every-second", 900 + round * 700).await;
    }
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    // The system's own limit on the size of a file stands for a full disk.
    let limited = [
        "sh",
        "-c",
        "trap '' XFSZ; ulimit -S -f 32; exec \"$0\" \"$@\"",
    ];
    let mut child = start(home.path(), "full", &limited);
    let mut acknowledged = 0;
    let mut after = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.strip_prefix('@') {
            Some(line) if line.starts_with("s ") => acknowledged += 1,
            Some(line) => after.push(line.to_owned()),
            None => {}
        }
    }
    child.wait().unwrap();
    assert!(acknowledged > 10, "{acknowledged}");
    assert!(
        after[0].contains("MISCONF") && after[0].contains("nothing was changed"),
        "{after:?}"
    );
    assert_eq!(after[1], "still readable");
    assert!(
        after[2].starts_with("Down(") && after[2].contains("can't be written"),
        "{after:?}"
    );
    assert_eq!(after[3], "Up", "as much was taken");
    let store = open(home.path(), Sync::EverySecond);
    assert_eq!(
        numbers(&store, "s").await,
        (0..acknowledged).collect::<Vec<u64>>()
    );
    store.append("s", number(acknowledged)).await.unwrap();
}

#[tokio::test]
async fn a_rewritten_log_is_shorter_and_holds_the_same() {
    let home = tempfile::tempdir().unwrap();
    let size = || -> u64 {
        std::fs::read_dir(home.path())
            .unwrap()
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum()
    };
    let store = open(home.path(), Sync::EverySecond);
    for value in 0..1000 {
        store.hash_set("h", "f", &value.to_string()).await.unwrap();
        if value % 100 == 0 {
            store.append("s", number(value)).await.unwrap();
        }
    }
    let before = size();
    store.compact().await.unwrap();
    assert!(size() < before / 10, "{} after {before}", size());
    store.append("s", number(1)).await.unwrap();
    let held = numbers(&store, "s").await;
    drop(store);
    let store = open(home.path(), Sync::EverySecond);
    assert_eq!(
        store.hash_get("h", "f").await.unwrap().as_deref(),
        Some("999")
    );
    assert_eq!(numbers(&store, "s").await, held);
}
