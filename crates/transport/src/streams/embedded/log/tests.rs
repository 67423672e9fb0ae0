//! What a log gives back, whole, cut short, damaged and rewritten.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use crossway_core::entry::{EntryId, Fields};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::segment::{self, segment_path};
use super::{Log, open};
use crate::streams::StoreError;
use crate::streams::embedded::engine::{
    AddOptions, Effect, Engine, Keep, SetOptions, SetTtl, SetWhen, Trim,
};

/// A step of a generated history, on few keys, so that they meet.
#[derive(Debug, Clone)]
enum Step {
    Add(u8),
    Trim(u8, u64),
    Group(u8),
    Read(u8),
    Acknowledge(u8, u64),
    Claim(u8),
    Put(u8, bool),
    Hash(u8),
    Unhash(u8),
    Delete(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0u8..3;
    prop_oneof![
        4 => key().prop_map(Step::Add),
        1 => (key(), 0u64..4).prop_map(|(key, most)| Step::Trim(key, most)),
        3 => key().prop_map(Step::Group),
        4 => key().prop_map(Step::Read),
        2 => (key(), 0u64..60).prop_map(|(key, ms)| Step::Acknowledge(key, ms)),
        1 => key().prop_map(Step::Claim),
        1 => (key(), any::<bool>()).prop_map(|(key, expires)| Step::Put(key, expires)),
        2 => key().prop_map(Step::Hash),
        1 => key().prop_map(Step::Unhash),
        1 => key().prop_map(Step::Delete),
    ]
}

fn effects(engine: &Engine, step: &Step, now: u64) -> Vec<Effect> {
    let word = Bytes::from_static;
    let name = |key: u8| Bytes::from(vec![b'a' + key]);
    let (group, consumer) = (word(b"g"), word(b"c"));
    let planned = match step {
        Step::Add(key) => {
            let fields = Fields::from_iter([(word(b"f"), Bytes::from(now.to_string()))]);
            engine
                .plan_add(name(*key), fields, AddOptions::PLAIN, now)
                .map(|plan| plan.effects)
        }
        Step::Trim(key, most) => {
            let trim = Trim {
                keep: Keep::Newest(*most),
                approximate: None,
            };
            engine
                .plan_trim(name(*key), trim, now)
                .map(|plan| plan.effects)
        }
        Step::Group(key) => engine
            .plan_group_create(name(*key), group, Some(EntryId::ZERO), None, true, now)
            .map(|plan| plan.effects),
        Step::Read(key) => engine
            .plan_read_new(&name(*key), &group, &consumer, 2, true, now)
            .map(|plan| plan.effects),
        Step::Acknowledge(key, ms) => engine
            .plan_acknowledge(name(*key), group, &[EntryId::new(*ms, 0)], now)
            .map(|plan| plan.effects),
        Step::Claim(key) => engine
            .plan_autoclaim(
                &name(*key),
                &group,
                &word(b"d"),
                0,
                EntryId::ZERO,
                2,
                false,
                now,
            )
            .map(|plan| plan.effects),
        Step::Put(key, expires) => {
            let ttl = if *expires {
                SetTtl::Until(now + 5)
            } else {
                SetTtl::Forever
            };
            let options = SetOptions {
                when: SetWhen::Always,
                ttl,
                get: false,
            };
            engine
                .plan_set(name(*key), word(b"v"), options, now)
                .map(|plan| plan.effects)
        }
        Step::Hash(key) => {
            let fields = vec![
                (Bytes::from(now.to_string()), word(b"v")),
                (word(b"f"), word(b"w")),
            ];
            engine
                .plan_hash_set(name(*key), fields, now)
                .map(|plan| plan.effects)
        }
        Step::Unhash(key) => engine
            .plan_hash_remove(name(*key), vec![word(b"f")], now)
            .map(|plan| plan.effects),
        Step::Delete(key) => Ok(engine.plan_delete(vec![name(*key)], now).effects),
    };
    planned.unwrap_or_default()
}

/// All data, as the effects that make it again, without the order in which keys were made.
fn dump(engine: &Engine) -> Vec<Vec<Effect>> {
    let mut keys: Vec<Vec<Effect>> = Vec::new();
    engine
        .snapshot(|effect| {
            match keys.last_mut() {
                Some(key) if key[0].key() == effect.key() => key.push(effect),
                _ => keys.push(vec![effect]),
            }
            Ok::<(), ()>(())
        })
        .unwrap();
    keys.sort_by(|a, b| a[0].key().cmp(b[0].key()));
    keys
}

fn carry_out(log: &mut Log, engine: &mut Engine, step: &Step, now: u64) {
    let effects = effects(engine, step, now);
    if !effects.is_empty() {
        log.append(&effects).unwrap();
        effects.iter().for_each(|effect| {
            engine.apply(effect);
        });
    }
}

fn one_file(dir: &Path, bytes: &[u8]) {
    fs::create_dir_all(dir).unwrap();
    fs::write(segment_path(dir, 1), bytes).unwrap();
}

#[test]
fn a_log_cut_anywhere_gives_the_state_after_some_whole_step() {
    let mut runner = TestRunner::new(Config {
        cases: 24,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&prop::collection::vec(step(), 1..40), |steps| {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("log");
        let (mut log, mut engine) = open(&dir).unwrap();
        let path = segment_path(&dir, 1);
        let mut states = vec![(segment::MAGIC.len() as u64, dump(&engine))];
        for (at, step) in steps.iter().enumerate() {
            carry_out(&mut log, &mut engine, step, at as u64 + 1);
            states.push((fs::metadata(&path).unwrap().len(), dump(&engine)));
        }
        drop(log);
        let bytes = fs::read(&path).unwrap();
        // Every boundary of a record, and every byte of the last three steps.
        let tail = states[states.len().saturating_sub(4)].0;
        let cuts = states
            .iter()
            .map(|(len, _)| *len)
            .chain(tail..=bytes.len() as u64);
        for (number, cut) in cuts.enumerate() {
            let dir = home.path().join(format!("cut{number}"));
            one_file(&dir, &bytes[..cut as usize]);
            let (mut log, mut engine) = open(&dir).unwrap();
            let (len, expected) = states.iter().rfind(|(len, _)| *len <= cut).unwrap();
            prop_assert_eq!(&dump(&engine), expected);
            prop_assert_eq!(fs::metadata(segment_path(&dir, 1)).unwrap().len(), *len);
            // It takes more, and keeps it.
            carry_out(&mut log, &mut engine, &Step::Delete(0), 1000);
            carry_out(&mut log, &mut engine, &Step::Add(0), 1000);
            drop(log);
            prop_assert_eq!(dump(&open(&dir).unwrap().1), dump(&engine));
            fs::remove_dir_all(&dir).unwrap();
        }
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn a_snapshot_gives_back_the_same_state() {
    let mut runner = TestRunner::new(Config {
        cases: 64,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&prop::collection::vec(step(), 1..80), |steps| {
        let mut engine = Engine::default();
        for (at, step) in steps.iter().enumerate() {
            for effect in effects(&engine, step, at as u64 + 1) {
                engine.apply(&effect);
            }
        }
        let home = tempfile::tempdir().unwrap();
        segment::write_snapshot(home.path(), 7, &engine).unwrap();
        prop_assert_eq!(dump(&open(home.path()).unwrap().1), dump(&engine));
        Ok(())
    });
    outcome.unwrap();
}

/// A log of ten steps, and where each of them begins.
fn ten_steps(dir: &Path) -> (Vec<u8>, Vec<u64>) {
    let (mut log, mut engine) = open(dir).unwrap();
    let mut starts = Vec::new();
    for now in 1..=10 {
        starts.push(fs::metadata(segment_path(dir, 1)).unwrap().len());
        carry_out(&mut log, &mut engine, &Step::Add(0), now);
    }
    (fs::read(segment_path(dir, 1)).unwrap(), starts)
}

#[test]
fn damage_before_the_end_is_refused_with_file_and_offset() {
    let home = tempfile::tempdir().unwrap();
    let (bytes, starts) = ten_steps(&home.path().join("log"));
    let dir = home.path().join("damaged");
    for at in starts[3]..starts[4] {
        let mut bytes = bytes.clone();
        bytes[at as usize] ^= 0x40;
        one_file(&dir, &bytes);
        let Err(StoreError::Disk { path, reason }) = open(&dir).map(|_| ()) else {
            panic!("a log that is damaged at byte {at} was taken")
        };
        assert_eq!(path, segment_path(&dir, 1).display().to_string());
        assert!(
            reason.contains(&format!("at byte {} is damaged", starts[3])),
            "{reason}"
        );
        assert_eq!(
            fs::read(segment_path(&dir, 1)).unwrap(),
            bytes,
            "nothing was cut off"
        );
    }
}

#[test]
fn a_missing_segment_and_a_foreign_file_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let (bytes, _) = ten_steps(&home.path().join("log"));
    let gap = home.path().join("gap");
    one_file(&gap, &bytes);
    fs::write(segment_path(&gap, 3), &bytes).unwrap();
    let error = open(&gap).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.contains("0000000000000002.log") && error.contains("missing"),
        "{error}"
    );
    let foreign = home.path().join("foreign");
    one_file(&foreign, b"something else altogether");
    let error = open(&foreign).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("isn't a log"), "{error}");
}

#[test]
fn a_torn_end_is_damage_where_another_segment_follows() {
    let home = tempfile::tempdir().unwrap();
    let (bytes, starts) = ten_steps(&home.path().join("log"));
    let dir = home.path().join("torn");
    one_file(&dir, &bytes[..bytes.len() - 1]);
    fs::write(segment_path(&dir, 2), segment::MAGIC).unwrap();
    let error = open(&dir).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(&format!("at byte {}", starts[9])), "{error}");
}

#[test]
fn a_folder_in_use_is_refused_until_it_is_free() {
    let home = tempfile::tempdir().unwrap();
    let first = open(home.path()).unwrap();
    let error = open(home.path()).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.contains(&home.path().display().to_string())
            && error.contains("in use by another process"),
        "{error}"
    );
    drop(first);
    open(home.path()).unwrap();
}

#[test]
fn what_a_rewrite_leaves_behind_when_it_is_cut_off_does_no_harm() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("log");
    let (mut log, mut engine) = open(&dir).unwrap();
    for now in 1..=5 {
        carry_out(&mut log, &mut engine, &Step::Add(0), now);
    }
    let expected = |engine: &Engine| dump(engine);
    // After the change to a new segment, before any snapshot.
    log.rotate().unwrap();
    carry_out(&mut log, &mut engine, &Step::Add(0), 6);
    drop(log);
    assert_eq!(dump(&open(&dir).unwrap().1), expected(&engine));
    // With half a snapshot.
    fs::write(
        segment::snapshot_path(&dir, 2).with_extension("unfinished"),
        segment::MAGIC,
    )
    .unwrap();
    assert_eq!(dump(&open(&dir).unwrap().1), expected(&engine));
    assert!(segment::list(&dir).unwrap().unfinished.is_empty());
    // With a whole snapshot, and what it stands for still there.
    let mut before = Engine::default();
    segment::replay(&segment_path(&dir, 1), &mut before).unwrap();
    segment::write_snapshot(&dir, 2, &before).unwrap();
    assert_eq!(dump(&open(&dir).unwrap().1), expected(&engine));
    assert_eq!(
        segment::list(&dir).unwrap().segments,
        [2],
        "the old segment is gone"
    );
}
