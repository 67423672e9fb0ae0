//! Nothing is lost and nothing is doubled, whatever is killed.

use crossway_harness::{Daemon, RedisServer};

use crate::traffic::Traffic;

const PROGRAM: &str = env!("CARGO_BIN_EXE_crossway");

/// Commands in each test: some hundreds from one kill to the next, with a thousand under way.
const TOTAL: usize = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_killed_twenty_times_loses_and_doubles_nothing() {
    let server = RedisServer::start().await;
    let mut daemon = Daemon::new(PROGRAM, &server.url());
    daemon.start();
    let traffic = Traffic::start(&server.url(), "asking", "answering", TOTAL).await;
    for kill in 1..=20 {
        traffic.reaches(kill * TOTAL / 21).await;
        daemon.kill();
        daemon.start();
    }
    traffic.exactly_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_embedded_store_killed_twenty_times_loses_and_doubles_nothing() {
    let mut daemon = Daemon::up(PROGRAM, "embedded").await;
    let traffic = Traffic::start(&daemon.embedded_url(), "asking", "answering", TOTAL).await;
    for kill in 1..=20 {
        traffic.reaches(kill * TOTAL / 21).await;
        daemon.kill();
        daemon.start();
    }
    traffic.exactly_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_daemons_killed_in_turn_lose_and_double_nothing() {
    let server = RedisServer::start().await;
    let mut daemons = [
        Daemon::new(PROGRAM, &server.url()),
        Daemon::new(PROGRAM, &server.url()),
    ];
    for daemon in &mut daemons {
        daemon.start();
    }
    let traffic = Traffic::start(&server.url(), "asking", "answering", TOTAL).await;
    for kill in 1..=20 {
        traffic.reaches(kill * TOTAL / 21).await;
        let daemon = &mut daemons[kill % 2];
        daemon.kill();
        if kill % 4 == 0 {
            // The other one has to take over by itself.
            traffic.reaches(kill * TOTAL / 21 + 400).await;
        }
        daemon.start();
    }
    traffic.exactly_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_restarted_with_its_log_on_loses_and_doubles_nothing() {
    let mut server = RedisServer::builder().append_only(true).start().await;
    let mut daemon = Daemon::new(PROGRAM, &server.url());
    daemon.start();
    let traffic = Traffic::start(&server.url(), "asking", "answering", TOTAL / 4).await;
    for kill in 1..=5 {
        traffic.reaches(kill * TOTAL / 24).await;
        server.kill();
        server.restart().await;
    }
    traffic.exactly_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server_and_a_paused_daemon_lose_and_double_nothing() {
    let server = RedisServer::start().await;
    let mut daemons = [
        Daemon::new(PROGRAM, &server.url()),
        Daemon::new(PROGRAM, &server.url()),
    ];
    for daemon in &mut daemons {
        daemon.start_ready().await;
    }
    let traffic = Traffic::start(&server.url(), "asking", "answering", TOTAL / 4).await;
    traffic.reaches(500).await;
    server.pause();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    server.resume();
    traffic.reaches(1000).await;
    let mut client = server.client().await;
    let _: () = redis::cmd("CLIENT")
        .arg("PAUSE")
        .arg(1000)
        .arg("ALL")
        .query_async(&mut client)
        .await
        .unwrap();
    traffic.reaches(1500).await;
    for daemon in &daemons {
        daemon.signal(rustix::process::Signal::STOP);
        // The other one takes over what this one holds, with this one still there.
        traffic.reaches(traffic.answered() + 700).await;
        daemon.signal(rustix::process::Signal::CONT);
        traffic.reaches(traffic.answered() + 300).await;
    }
    traffic.exactly_once().await;
}
