//! Connections: what is unknown, logging in, many commands at once, and broken ones.

use crossway_harness::RedisServer;
use crossway_transport::streams::embedded::Embedded;
use crossway_transport::streams::embedded::server::{Password, ServerOptions};
use redis_protocol::resp2::types::OwnedFrame as Frame2;

use super::pair::{Pair, address, same_answers};
use crate::wire::{Client, DEADLINE, Frame, Served};

#[tokio::test]
async fn what_is_unknown_is_answered_as_a_real_server_does() {
    same_answers(
        "
        PING
        PING hello
        PING a b
        NOSUCH
        NOSUCH a b c
        nosuch a
        NOSUCH aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b c
        SELECT 0
        SELECT 99
        SELECT x
        SELECT
        HELLO 4
        HELLO x
        HELLO 3 FOO
        AUTH x
        AUTH default x
        AUTH other x
        AUTH a b c
        AUTH
        CLIENT
        CLIENT SETNAME name
        CLIENT SETNAME
        CLIENT ID x
        CLIENT NOSUCH
        COMMAND NOSUCH
        SCAN 0
        SCAN x
        SCAN 0 COUNT 0
        SCAN 0 COUNT x
        SCAN 0 MATCH
        SCAN 0 FOO 1
        SCAN
        SET only 1
        SCAN 0
        SCAN 0 MATCH o*
        SCAN 0 MATCH x*
        SCAN 0 TYPE string
        SCAN 0 TYPE stream COUNT 5
        ",
    )
    .await;
}

#[tokio::test]
async fn a_password_is_asked_for_before_anything_else() {
    let real = RedisServer::builder()
        .config("requirepass", "secret")
        .start()
        .await;
    let options = ServerOptions {
        password: Some(Password::new("secret")),
        ..ServerOptions::default()
    };
    let ours = Served::start(Embedded::in_memory(), options).await;
    let mut pair = Pair::connect(address(&real), ours.at, false).await;
    for line in [
        "PING",
        "GET a",
        "HELLO 3",
        "HELLO",
        "NOSUCH",
        "GET",
        "AUTH wrong",
        "AUTH default wrong",
        "AUTH other secret",
        "HELLO 2 AUTH default wrong",
        "INFO",
        "AUTH secret",
        "PING",
        "GET a",
        "AUTH wrong",
        "PING",
    ] {
        pair.run(line).await;
    }
    pair.judge();
    ours.stop().await;
}

#[tokio::test]
async fn commands_sent_together_are_answered_in_order() {
    let ours = Served::plain().await;
    let mut client = Client::connect(ours.at).await;
    let mut all = Vec::new();
    for number in 0..2000 {
        all.extend(
            format!(
                "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n{number:04}\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n"
            )
            .bytes(),
        );
    }
    client.raw(&all).await;
    for number in 0..2000 {
        assert_eq!(
            client.frame().await,
            Some(Frame::Two(Frame2::SimpleString(b"OK".to_vec())))
        );
        assert_eq!(
            client.frame().await,
            Some(Frame::Two(Frame2::BulkString(
                format!("{number:04}").into_bytes()
            )))
        );
    }
    client.raw(b"PING\r\nGET a\r\n").await;
    assert_eq!(
        client.frame().await,
        Some(Frame::Two(Frame2::SimpleString(b"PONG".to_vec())))
    );
    ours.stop().await;
}

#[tokio::test]
async fn what_breaks_the_protocol_is_told_as_a_real_server_does_and_ends_the_connection() {
    let real = RedisServer::start().await;
    let ours = Served::plain().await;
    for bytes in [
        &b"*99999999999\r\n"[..],
        b"*x\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n*1\r\n$4\r\nPING\r\n",
        b"*1\r\n$-5\r\n",
        b"*1\r\n$99999999999999\r\n",
        b"PING \"open\r\n",
    ] {
        let mut answers = Vec::new();
        for at in [address(&real), ours.at] {
            let mut client = Client::connect(at).await;
            client.raw(bytes).await;
            let answer = client.frame().await;
            assert_eq!(
                client.frame().await,
                None,
                "the connection ends after {:?}",
                bytes.escape_ascii().to_string()
            );
            answers.push(answer);
        }
        assert_eq!(answers[0], answers[1], "{}", bytes.escape_ascii());
    }
    ours.stop().await;
}

#[tokio::test]
async fn a_client_too_many_is_turned_away_and_a_place_that_is_left_is_free_again() {
    let ours = Served::start(
        Embedded::in_memory(),
        ServerOptions {
            max_connections: 1,
            ..ServerOptions::default()
        },
    )
    .await;
    let mut first = Client::connect(ours.at).await;
    first.call("PING").await;
    let mut second = Client::connect(ours.at).await;
    let refused = second.frame().await.unwrap();
    assert_eq!(refused.error(), Some("ERR max number of clients reached"));
    assert_eq!(second.frame().await, None);
    drop(first);
    crossway_harness::eventually(DEADLINE, "the place is free", async || {
        let mut third = Client::connect(ours.at).await;
        third.send(&["PING"]).await;
        third.frame().await.filter(|frame| frame.error().is_none())
    })
    .await;
    ours.stop().await;
}
