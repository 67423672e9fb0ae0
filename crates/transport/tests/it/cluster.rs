//! What happens on a cluster alone: slots that move, and nodes that go away.

use crossway_harness::RedisCluster;
use crossway_transport::streams::cluster::Cluster;
use crossway_transport::streams::{GroupReader, Health, Settled, Settlement, Streams};

use crate::store::{Store, forward, put, read, said, settle};

/// Forwards so many entries of `a` to `b`, numbered from `from` on.
async fn carry(store: &Store, reader: &mut dyn GroupReader, from: usize) {
    for number in from..from + 5 {
        store.add("a", &number.to_string()).await;
    }
    let entries = read(reader, 5).await.entries;
    let expected: Vec<String> = (from..from + 5)
        .map(|number| format!("a={number}"))
        .collect();
    assert_eq!(said(&entries), expected);
    let settlements: Vec<Settlement> = entries
        .iter()
        .enumerate()
        .map(|(at, read)| Settlement {
            puts: vec![put("record", "kept")],
            ..forward(read, "b", &(from + at).to_string())
        })
        .collect();
    let settled = settle(reader, settlements).await.expect("an answer");
    assert_eq!(settled, vec![Settled::Done; 5]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_is_kept_and_nothing_doubled_while_slots_move() {
    let cluster = RedisCluster::start(3).await;
    let store = Store::on_cluster(&cluster).await;
    let mut reader = store.reader(&["a"]);
    let mut carried = 0;
    // The target's slot, the source's, and that of the members' hash.
    for key in ["b", "a", "members"] {
        let from = cluster.master_of(key).await;
        let to = (from + 1) % 3;
        carry(&store, &mut *reader, carried).await;
        cluster.begin_to_move(key, from, to).await;
        carry(&store, &mut *reader, carried + 5).await;
        cluster.finish_the_move(key, to).await;
        carry(&store, &mut *reader, carried + 10).await;
        carried += 15;
    }
    let expected: Vec<String> = (0..carried).map(|number| number.to_string()).collect();
    assert_eq!(store.values("b").await, expected);
    assert_eq!(store.pending("a").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_node_would_have_to_take_waits_and_the_rest_goes_on() {
    let mut cluster = RedisCluster::start(3).await;
    let store = Store::on_cluster(&cluster).await;
    let (home, members) = (
        cluster.master_of("a").await,
        cluster.master_of("members").await,
    );
    // Keys by the number of their node: one on a node that only the target needs.
    let mut away = None;
    for name in ["b", "c", "d", "e", "f", "g", "h"] {
        let node = cluster.master_of(name).await;
        if node != home && node != members {
            away = Some((name, node));
        }
    }
    let Some((target, node)) = away else {
        panic!("no key lies on the third node");
    };
    // The others go on without a full cluster only where they are told to.
    for mut client in cluster.clients().await {
        redis::cmd("CONFIG")
            .arg(&["SET", "cluster-require-full-coverage", "no"])
            .exec_async(&mut client)
            .await
            .expect("a setting");
    }
    for value in ["1", "2", "3"] {
        store.add("a", value).await;
    }
    let mut reader = store.reader(&["a"]);
    let entries = read(&mut *reader, 3).await.entries;
    cluster.kill(node);
    let settlements = vec![
        forward(&entries[0], "a", "home"),
        forward(&entries[1], target, "away"),
        forward(&entries[2], "a", "home again"),
    ];
    let settled = settle(&mut *reader, settlements).await.expect("an answer");
    assert_eq!((&settled[0], &settled[2]), (&Settled::Done, &Settled::Done));
    let Settled::Failed(reason) = &settled[1] else {
        panic!("{settled:?}");
    };
    assert!(
        crossway_transport::streams::is_transient(reason),
        "{reason}"
    );
    reader.rewind();
    let again = read(&mut *reader, 3).await.entries;
    assert_eq!(said(&again), ["a=2", "a=home", "a=home again"]);
    let url = cluster.url().parse().expect("a URL");
    let other = Cluster::open(&url).await.expect("a store");
    assert!(matches!(other.health().await, Health::Down(_)));
}
