//! Scripts that nobody thought of.

use crossway_harness::RedisServer;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::pair::{Pair, address};
use crate::wire::Served;

/// One command of a generated script: few keys, groups and ids, so that they meet.
fn command() -> impl Strategy<Value = String> {
    let key = || prop::sample::select(vec!["a", "b", "c"]);
    let group = || prop::sample::select(vec!["g", "h"]);
    let consumer = || prop::sample::select(vec!["x", "y"]);
    let id = || (0u64..8, 0u64..3).prop_map(|(ms, seq)| format!("{ms}-{seq}"));
    let small = 0u64..5;
    prop_oneof![
        6 => (key(), 1u64..60).prop_map(|(key, ms)| format!("XADD {key} {ms}-* f v")),
        2 => (key(), id()).prop_map(|(key, id)| format!("XADD {key} {id} f v g w")),
        1 => (key(), small.clone(), id()).prop_map(|(key, most, id)| format!("XADD {key} MAXLEN {most} {id} f v")),
        3 => (key(), group(), id()).prop_map(|(key, group, id)| format!("XGROUP CREATE {key} {group} {id} MKSTREAM")),
        1 => (key(), group()).prop_map(|(key, group)| format!("XGROUP CREATE {key} {group} $")),
        1 => (key(), group()).prop_map(|(key, group)| format!("XGROUP DESTROY {key} {group}")),
        6 => (key(), group(), consumer(), 1u64..4).prop_map(|(key, group, consumer, count)| format!("XREADGROUP GROUP {group} {consumer} COUNT {count} STREAMS {key} >")),
        1 => (key(), group(), consumer()).prop_map(|(key, group, consumer)| format!("XREADGROUP GROUP {group} {consumer} NOACK COUNT 1 STREAMS {key} >")),
        2 => (key(), group(), consumer(), id()).prop_map(|(key, group, consumer, id)| format!("XREADGROUP GROUP {group} {consumer} STREAMS {key} {id}")),
        3 => (key(), group(), id(), id()).prop_map(|(key, group, one, two)| format!("XACK {key} {group} {one} {two}")),
        2 => (key(), group(), consumer(), id(), 1u64..4).prop_map(|(key, group, consumer, id, count)| format!("XAUTOCLAIM {key} {group} {consumer} 0 {id} COUNT {count}")),
        2 => (key(), small).prop_map(|(key, most)| format!("XTRIM {key} MAXLEN {most}")),
        2 => (key(), id()).prop_map(|(key, id)| format!("XTRIM {key} MINID {id}")),
        1 => (key(), group()).prop_map(|(key, group)| format!("XPENDING {key} {group}")),
        2 => (key(), group()).prop_map(|(key, group)| format!("XPENDING {key} {group} - + 10")),
        2 => key().prop_map(|key| format!("XRANGE {key} - +")),
        1 => (key(), id(), id()).prop_map(|(key, from, to)| format!("XREVRANGE {key} ({to} {from} COUNT 2")),
        1 => (key(), id()).prop_map(|(key, id)| format!("XREAD COUNT 2 STREAMS {key} {id}")),
        2 => key().prop_map(|key| format!("XINFO GROUPS {key}")),
        1 => key().prop_map(|key| format!("XINFO STREAM {key}")),
        1 => key().prop_map(|key| format!("DEL {key}")),
        1 => key().prop_map(|key| format!("SET {key} 1")),
        1 => key().prop_map(|key| format!("HSET {key} f 1")),
        1 => key().prop_map(|key| format!("TYPE {key}")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_scripts_answer_as_a_real_server() {
    let mut runner = TestRunner::new(Config {
        cases: 60,
        failure_persistence: None,
        ..Config::default()
    });
    let real = RedisServer::start().await;
    let at = address(&real);
    let handle = tokio::runtime::Handle::current();
    let outcome = tokio::task::block_in_place(|| {
        runner.run(&prop::collection::vec(command(), 1..60), |script| {
            handle.block_on(async {
                real.flush().await;
                let ours = Served::plain().await;
                let mut pair = Pair::connect(at, ours.at, script.len().is_multiple_of(2)).await;
                for line in &script {
                    pair.run(line).await;
                }
                ours.stop().await;
                prop_assert!(
                    pair.differences.is_empty(),
                    "{}",
                    pair.differences.join("\n")
                );
                Ok(())
            })
        })
    });
    outcome.unwrap();
}
