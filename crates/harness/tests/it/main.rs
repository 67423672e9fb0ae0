//! What a test may rely on of the servers it starts.

#![allow(clippy::expect_used, reason = "a test that fails may panic")]

use std::time::Duration;

use crossway_harness::{RedisServer, eventually};

async fn get(server: &RedisServer, key: &str) -> Option<String> {
    redis::cmd("GET")
        .arg(key)
        .query_async(&mut server.client().await)
        .await
        .expect("GET")
}

async fn set(server: &RedisServer, key: &str, value: &str) {
    redis::cmd("SET")
        .arg(key)
        .arg(value)
        .exec_async(&mut server.client().await)
        .await
        .expect("SET");
}

#[tokio::test]
async fn what_was_written_survives_a_kill_when_it_is_kept() {
    let mut server = RedisServer::builder().append_only(true).start().await;
    let port = server.port();
    set(&server, "word", "kept").await;
    server.kill();
    assert!(
        tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_err()
    );
    server.restart().await;
    assert_eq!(server.port(), port);
    assert_eq!(get(&server, "word").await.as_deref(), Some("kept"));
    server.flush().await;
    assert_eq!(get(&server, "word").await, None);
}

#[tokio::test]
async fn a_paused_server_answers_after_it_goes_on() {
    let server = RedisServer::start().await;
    let mut client = server.client().await;
    server.pause();
    let mut ask =
        std::pin::pin!(async move { redis::cmd("PING").query_async::<String>(&mut client).await });
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut ask)
            .await
            .is_err()
    );
    server.resume();
    assert_eq!(ask.await.expect("an answer"), "PONG");
}

#[tokio::test]
async fn the_process_ends_with_the_value() {
    let server = RedisServer::builder().unix_socket(true).start().await;
    let port = server.port();
    let socket = server.unix_url().trim_start_matches("unix://").to_owned();
    assert!(tokio::net::UnixStream::connect(&socket).await.is_ok());
    server.pause();
    drop(server);
    eventually(Duration::from_secs(5), "the port to close", async || {
        tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_err()
            .then_some(())
    })
    .await;
    assert!(!std::path::Path::new(&socket).exists());
}

#[tokio::test]
#[should_panic(expected = "no-such-directive")]
async fn a_server_that_does_not_come_up_shows_why() {
    let _ = RedisServer::builder()
        .config("no-such-directive", "1")
        .start()
        .await;
}

#[tokio::test]
async fn a_user_reaches_only_what_the_rules_say() {
    let server = RedisServer::builder()
        .acl_line("user guest on >word ~open:* +@all")
        .start()
        .await;
    let client = redis::Client::open(server.url().replace("://", "://guest:word@")).expect("a URL");
    let mut guest = client
        .get_multiplexed_async_connection()
        .await
        .expect("a connection");
    redis::cmd("SET")
        .arg("open:a")
        .arg("1")
        .exec_async(&mut guest)
        .await
        .expect("its own key");
    let refused = redis::cmd("SET")
        .arg("other")
        .arg("1")
        .exec_async(&mut guest)
        .await
        .expect_err("another's key");
    assert!(
        refused.to_string().contains("NOPERM") || refused.code() == Some("NOPERM"),
        "{refused}"
    );
}
