//! Readers that wait.

use std::time::Duration;

use crossway_harness::RedisServer;
use redis_protocol::resp2::types::OwnedFrame as Frame2;

use super::pair::address;
use crate::wire::{Client, DEADLINE, Frame, Served, words};

/// Waits until so many clients wait for something.
async fn blocked(client: &mut Client, count: usize) {
    let wanted = format!("blocked_clients:{count}\r\n");
    crossway_harness::eventually(DEADLINE, "the clients wait", async || {
        let text = match client.call("INFO clients").await {
            Frame::Two(Frame2::BulkString(text)) => String::from_utf8_lossy(&text).into_owned(),
            other => panic!("{other:?}"),
        };
        text.contains(&wanted).then_some(())
    })
    .await;
}

#[tokio::test]
async fn blocked_readers_are_woken_with_what_a_real_server_gives() {
    for three in [false, true] {
        let real = RedisServer::start().await;
        let ours = Served::plain().await;
        for (wait, wake) in [
            ("XREAD BLOCK 0 STREAMS s $", vec!["XADD s 50-1 f v"]),
            ("XREAD BLOCK 0 STREAMS q s $ $", vec!["XADD s 51-1 f v"]),
            (
                "XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
                vec!["XADD s 52-1 f v"],
            ),
            (
                "XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
                vec!["XGROUP DESTROY s g"],
            ),
            ("XREADGROUP GROUP g c BLOCK 0 STREAMS s >", vec!["DEL s"]),
        ] {
            let mut frames = Vec::new();
            for at in [address(&real), ours.at] {
                let mut other = Client::connect(at).await;
                other.call("XGROUP DESTROY s g").await;
                other.call("XGROUP CREATE s g $ MKSTREAM").await;
                let mut waiting = if three {
                    Client::connect_three(at).await
                } else {
                    Client::connect(at).await
                };
                waiting.send(&words(wait)).await;
                blocked(&mut other, 1).await;
                for line in &wake {
                    other.call(line).await;
                }
                frames.push(waiting.frame().await);
            }
            assert_eq!(frames[0], frames[1], "{wait} woken by {wake:?}");
        }
        ours.stop().await;
    }
}

#[tokio::test]
async fn readers_of_a_group_are_served_in_the_order_they_blocked() {
    let ours = Served::plain().await;
    let mut writer = Client::connect(ours.at).await;
    writer.call("XGROUP CREATE s g 0 MKSTREAM").await;
    let mut readers = Vec::new();
    for number in 0..5 {
        let mut reader = Client::connect(ours.at).await;
        reader
            .send(&words(&format!(
                "XREADGROUP GROUP g c{number} COUNT 1 BLOCK 0 STREAMS s >"
            )))
            .await;
        blocked(&mut writer, number + 1).await;
        readers.push(reader);
    }
    // The second leaves: what it waited for goes to the next.
    drop(readers.remove(1));
    blocked(&mut writer, 4).await;
    for number in 1..=4 {
        writer.call(&format!("XADD s {number}-0 n {number}")).await;
    }
    for (number, reader) in readers.iter_mut().enumerate() {
        let frame = format!("{:?}", reader.frame().await.unwrap());
        let id = format!("{}-0", number + 1);
        let bytes = format!("{:?}", Frame2::BulkString(id.into_bytes()));
        assert!(frame.contains(&bytes), "{frame} has no {bytes}");
    }
    ours.stop().await;
}

#[tokio::test]
async fn the_server_ends_although_clients_wait() {
    let ours = Served::plain().await;
    let mut waiting = Client::connect(ours.at).await;
    waiting.send(&words("XREAD BLOCK 0 STREAMS s $")).await;
    let mut other = Client::connect(ours.at).await;
    blocked(&mut other, 1).await;
    let store = std::sync::Arc::clone(&ours.store);
    tokio::time::timeout(Duration::from_secs(5), ours.stop())
        .await
        .unwrap();
    assert_eq!(waiting.frame().await, None);
    drop(store);
}
