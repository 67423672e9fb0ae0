//! The embedded store answers as a real server does: the same words, frame by frame.

use std::net::SocketAddr;
use std::time::Duration;

use crossway_harness::RedisServer;
use crossway_transport::streams::embedded::Embedded;
use crossway_transport::streams::embedded::server::{Password, ServerOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis_protocol::resp2::types::OwnedFrame as Frame2;
use redis_protocol::resp3::types::OwnedFrame as Frame3;

use crate::wire::{Client, DEADLINE, Frame, Served, words};

/// A real server and ours, each spoken to in one version of the protocol.
struct Pair {
    real: Client,
    ours: Client,
    three: bool,
    differences: Vec<String>,
}

impl Pair {
    async fn connect(real: SocketAddr, ours: SocketAddr, three: bool) -> Pair {
        let (real, ours) = if three {
            (
                Client::connect_three(real).await,
                Client::connect_three(ours).await,
            )
        } else {
            (Client::connect(real).await, Client::connect(ours).await)
        };
        Pair {
            real,
            ours,
            three,
            differences: Vec::new(),
        }
    }

    /// Runs a line on both; what differs is kept, so that one run shows all of it.
    async fn run(&mut self, line: &str) {
        let real = normal(line, self.real.call(line).await);
        let ours = normal(line, self.ours.call(line).await);
        if real != ours {
            let version = if self.three { 3 } else { 2 };
            self.differences.push(format!(
                "{line}   (version {version})\n  real: {real:?}\n  ours: {ours:?}"
            ));
        }
    }

    fn judge(&self) {
        assert!(
            self.differences.is_empty(),
            "{} answers differ:\n{}",
            self.differences.len(),
            self.differences.join("\n")
        );
    }
}

/// The answer without what is allowed to differ: how long something has been idle, and the order
/// of a hash.
fn normal(line: &str, frame: Frame) -> Frame {
    let name = line
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    match frame {
        Frame::Two(Frame2::Array(mut items)) if name == "hgetall" => {
            let mut pairs: Vec<Vec<Frame2>> = items.chunks(2).map(<[Frame2]>::to_vec).collect();
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            items = pairs.concat();
            Frame::Two(Frame2::Array(items))
        }
        Frame::Two(Frame2::Array(mut rows)) if name == "xpending" => {
            for row in &mut rows {
                if let Frame2::Array(row) = row
                    && row.len() == 4
                {
                    row[2] = Frame2::Integer(0);
                }
            }
            Frame::Two(Frame2::Array(rows))
        }
        Frame::Three(Frame3::Array {
            mut data,
            attributes,
        }) if name == "xpending" => {
            for row in &mut data {
                if let Frame3::Array { data: row, .. } = row
                    && row.len() == 4
                {
                    row[2] = Frame3::Number {
                        data: 0,
                        attributes: None,
                    };
                }
            }
            Frame::Three(Frame3::Array { data, attributes })
        }
        other => other,
    }
}

fn address(server: &RedisServer) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.port()))
}

/// Runs a script on a fresh pair of servers, in both versions of the protocol.
async fn same_answers(script: &str) {
    for three in [false, true] {
        let real = RedisServer::start().await;
        let ours = Served::plain().await;
        let mut pair = Pair::connect(address(&real), ours.at, three).await;
        for line in script
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            pair.run(line).await;
        }
        pair.judge();
        ours.stop().await;
    }
}

#[tokio::test]
async fn strings_hashes_and_expiry_answer_as_a_real_server() {
    same_answers(
        "
        GET a
        SET a 1
        GET a
        get a
        SET a 2 NX
        SET a 2 XX
        SET b 2 XX
        SET a 3 GET
        SET fresh 1 NX GET
        SET fresh 2 NX GET
        SET a 3 EX 100
        TTL a
        SET a 4 KEEPTTL
        TTL a
        SET a 5
        TTL a
        SET a 5 PX 100000
        TTL a
        SET a 5 EXAT 99999999999
        SET a 5 PXAT 99999999999000
        SET a 5 EX 0
        SET a 5 EX -1
        SET a 5 PX x
        SET a 5 EX 9223372036854775807
        SET a 5 PX 9223372036854775807
        SET a 5 EXAT 9223372036854775807
        SET a 5 EX
        SET a 5 NX XX
        SET a 5 EX 1 PX 1
        SET a 5 EX 1 KEEPTTL
        SET a 5 KEEPTTL EX 1
        SET a 5 NONSENSE
        SET a
        SET
        GET
        GET a b
        TYPE a
        TYPE none
        EXISTS a a none
        EXISTS
        DEL a a none
        DEL
        DEL none
        EXISTS a
        HSET h f 1 g 2
        HSET h f 3 i 4 i 5
        HSET h f
        HSET h f 1 g
        HSET h
        HGET h f
        HGET h i
        HGET h none
        HGET none f
        HGET h
        HGETALL h
        HGETALL none
        HDEL h f none f
        HDEL h
        HDEL none f
        HDEL h g i
        EXISTS h
        TYPE h
        SET s 1
        HSET h f 1
        HGET s f
        HSET s f 1
        HGETALL s
        HDEL s f
        GET h
        SET h 1 GET
        TYPE h
        EXPIRE s 100
        TTL s
        EXPIRE s 100 NX
        EXPIRE s 200 XX
        EXPIRE s 100 GT
        EXPIRE s 300 GT
        TTL s
        EXPIRE s 400 LT
        EXPIRE s 50 LT
        TTL s
        EXPIRE s 1 NX GT
        EXPIRE s 1 GT LT
        EXPIRE s 1 XX GT
        EXPIRE s x
        EXPIRE s 1 FOO
        EXPIRE s x FOO
        EXPIRE s 9223372036854775807
        EXPIRE s
        EXPIRE none 1
        TTL none
        TTL h
        EXPIRE h 10 GT
        EXPIRE h 10 LT
        TTL h
        EXPIRE h 0
        EXISTS h
        EXPIRE s -1
        EXISTS s
        TYPE
        TTL
        ",
    )
    .await;
}

#[tokio::test]
async fn adding_reading_and_trimming_answer_as_a_real_server() {
    same_answers(
        "
        XADD s 1-1 f v
        XADD s 1-1 f v
        XADD s 1-0 f v
        XADD s 0-0 f v
        XADD s 0 f v
        XADD s 1-* f v
        XADD s 0-* f v
        XADD s 5 f v
        XADD s 5-* f v g w f x
        XADD s 5-5-5 f v
        XADD s -1 f v
        XADD s x f v
        XADD s 6-x f v
        XADD s *-1 f v
        XADD s 6-1 f
        XADD s 6-1 f v g
        XADD s 6-1
        XADD s
        XADD none NOMKSTREAM 1-1 f v
        EXISTS none
        XADD s NOMKSTREAM 7-1 f v
        XADD s MAXLEN 3 8-1 f v
        XLEN s
        XADD s MAXLEN = 2 9-1 f v
        XADD s MAXLEN ~ 1 10-1 f v
        XLEN s
        XADD s MINID 9 11-1 f v
        XADD s MINID ~ 11 12-1 f v
        XADD s MAXLEN -1 13-1 f v
        XADD s MAXLEN x 13-1 f v
        XADD s MINID x 13-1 f v
        XADD s MAXLEN 1 MINID 1 13-1 f v
        XADD s MAXLEN 1 LIMIT 1 13-1 f v
        XADD s MAXLEN ~ 1 LIMIT 1 13-1 f v
        XADD s MAXLEN ~ 1 LIMIT -1 14-1 f v
        XADD s MAXLEN ~ 1 LIMIT x 14-1 f v
        XADD s LIMIT 1 14-1 f v
        XADD s MAXLEN 14-1 f v
        XADD t MAXLEN 0 1-1 f v
        XLEN t
        XADD t 1-1 f v
        XADD t 2-1 f v
        XINFO STREAM t
        XINFO STREAM s
        XRANGE s - +
        XRANGE s - + COUNT 2
        XRANGE s - + COUNT 0
        XRANGE s - + COUNT -1
        XRANGE s - + COUNT x
        XRANGE s - + COUNT
        XRANGE s - + FOO 1
        XRANGE s 9 11
        XRANGE s (9-1 (11-1
        XRANGE s (- +
        XRANGE s (18446744073709551615-18446744073709551615 +
        XRANGE s - (0-0
        XRANGE s x +
        XRANGE s - x
        XRANGE s 12 9
        XRANGE s -
        XRANGE none - +
        XREVRANGE s + -
        XREVRANGE s + - COUNT 1
        XREVRANGE s 11 (9-1
        XREVRANGE s - +
        XREVRANGE none + -
        XLEN none
        XLEN
        XTRIM s MAXLEN 2
        XTRIM s MAXLEN = 2
        XTRIM s MAXLEN ~ 1
        XTRIM s MINID 13
        XTRIM s MAXLEN 2 LIMIT 5
        XTRIM s LIMIT 5
        XTRIM s FOO 5
        XTRIM s MAXLEN
        XTRIM s MAXLEN 1 FOO
        XTRIM s MAXLEN -1
        XTRIM none MAXLEN 1
        XTRIM s MAXLEN 0
        XLEN s
        TYPE s
        XADD s 1-1 f v
        XRANGE s - +
        XINFO STREAM s
        XADD m 18446744073709551615-18446744073709551615 f v
        XADD m * f v
        XADD m 1-1 f v
        XADD m 18446744073709551615-* f v
        XADD n 1-18446744073709551615 f v
        XADD n 18446744073709551616-1 f v
        SET str 1
        XADD str 1-1 f v
        XLEN str
        XRANGE str - +
        XREVRANGE str + -
        XTRIM str MAXLEN 1
        XINFO STREAM str
        XINFO STREAM none
        XINFO STREAM
        XINFO GROUPS
        XINFO GROUPS none
        XINFO GROUPS str
        XINFO NONSENSE s
        XINFO
        XREAD STREAMS n 0
        XREAD COUNT 1 STREAMS n m 0 0
        XREAD STREAMS n $
        XREAD STREAMS n 1-18446744073709551615
        XREAD BLOCK 1 STREAMS n $
        XREAD BLOCK -1 STREAMS n $
        XREAD BLOCK x STREAMS n $
        XREAD COUNT x STREAMS n $
        XREAD COUNT -5 STREAMS n 0
        XREAD COUNT 0 STREAMS n 0
        XREAD STREAMS n
        XREAD STREAMS n m 0
        XREAD STREAMS n >
        XREAD STREAMS n x
        XREAD STREAMS none 0
        XREAD STREAMS str 0
        XREAD GROUP g c STREAMS n 0
        XREAD NOACK STREAMS n 0
        XREAD FOO STREAMS n 0
        XREAD COUNT 1 BLOCK 1
        XREAD
        ",
    )
    .await;
}

#[tokio::test]
async fn groups_answer_as_a_real_server() {
    same_answers(
        "
        XGROUP CREATE s g 0
        XGROUP CREATE s g 0 MKSTREAM
        XGROUP CREATE s g 0 MKSTREAM
        XGROUP CREATE s h $ MKSTREAM ENTRIESREAD 5
        XGROUP CREATE s i 0 ENTRIESREAD -2
        XGROUP CREATE s i 0 ENTRIESREAD x
        XGROUP CREATE s i x
        XGROUP CREATE s i 0 FOO
        XGROUP CREATE s i
        XGROUP CREATE
        XGROUP FOO s
        XGROUP
        XLEN s
        TYPE s
        XINFO GROUPS s
        XINFO STREAM s
        XREADGROUP GROUP g c STREAMS s >
        XREADGROUP GROUP g c STREAMS s 0
        XADD s 1-1 f v
        XADD s 2-1 f v
        XADD s 3-1 f v
        XADD s 4-1 f v
        XADD s 5-1 f v
        XINFO GROUPS s
        XREADGROUP GROUP g c COUNT 2 STREAMS s >
        XREADGROUP GROUP g d COUNT 1 STREAMS s >
        XREADGROUP GROUP g c NOACK COUNT 1 STREAMS s >
        XREADGROUP GROUP h c STREAMS s >
        XINFO GROUPS s
        XPENDING s g
        XPENDING s g - + 10
        XPENDING s g - + 1
        XPENDING s g - + 0
        XPENDING s g - + -1
        XPENDING s g - + 10 c
        XPENDING s g - + 10 none
        XPENDING s g (1-1 + 10
        XPENDING s g - (3-1 10
        XPENDING s g + - 10
        XPENDING s g IDLE 0 - + 10
        XPENDING s g IDLE 1000000 - + 10
        XPENDING s g IDLE 0 - + 10 d
        XPENDING s g IDLE x - + 10
        XPENDING s g IDLE 0 - +
        XPENDING s g - +
        XPENDING s g -
        XPENDING s g x + 10
        XPENDING s g - + x
        XPENDING s g - + 10 c extra
        XPENDING s none
        XPENDING none g
        XPENDING none g - + 10
        XPENDING s
        XREADGROUP GROUP g c STREAMS s 0
        XREADGROUP GROUP g c STREAMS s 1-1
        XREADGROUP GROUP g c COUNT 1 STREAMS s 0
        XREADGROUP GROUP g none STREAMS s 0
        XREADGROUP GROUP g c STREAMS s 99
        XPENDING s g - + 10
        XTRIM s MINID 2
        XREADGROUP GROUP g c STREAMS s 0
        XINFO GROUPS s
        XACK s g 1-1
        XACK s g 1-1
        XACK s g 2-1 2-1 3-1 9-9
        XACK s g x
        XACK s none x
        XACK none g 1-1
        XACK s g
        XPENDING s g
        XPENDING s g - + 10
        XINFO GROUPS s
        XREADGROUP GROUP g c STREAMS s >
        XREADGROUP GROUP g c BLOCK 1 STREAMS s >
        XREADGROUP GROUP none c STREAMS s >
        XREADGROUP GROUP g c STREAMS none >
        XREADGROUP GROUP g c STREAMS s none > >
        XREADGROUP GROUP g c STREAMS s
        XREADGROUP GROUP g c STREAMS s $
        XREADGROUP GROUP g c STREAMS s x
        XREADGROUP GROUP g c STREAMS s s >
        XREADGROUP STREAMS s >
        XREADGROUP COUNT 1 BLOCK 1 STREAMS s >
        XREADGROUP GROUP g c COUNT x STREAMS s >
        XREADGROUP GROUP g c BLOCK -1 STREAMS s >
        XREADGROUP GROUP g
        XADD q 1-1 f v
        XADD q 2-1 f v
        XADD q 3-1 f v
        XADD q 4-1 f v
        XGROUP CREATE q g 0
        XREADGROUP GROUP g c STREAMS q >
        XTRIM q MINID 2
        XAUTOCLAIM q g d 0 0 COUNT 1
        XAUTOCLAIM q g d 0 0 COUNT 2
        XPENDING q g - + 10
        XAUTOCLAIM q g e 0 0 JUSTID
        XAUTOCLAIM q g e 0 (2-1
        XPENDING q g - + 10
        XAUTOCLAIM q g e 1000000 0
        XAUTOCLAIM q g e -5 0
        XAUTOCLAIM q g e x 0
        XAUTOCLAIM q g e 0 x
        XAUTOCLAIM q g e 0 - COUNT 0
        XAUTOCLAIM q g e 0 - COUNT x
        XAUTOCLAIM q g e 0 - COUNT
        XAUTOCLAIM q g e 0 - FOO
        XAUTOCLAIM q g e 0
        XAUTOCLAIM q none e 0 0
        XAUTOCLAIM none g e 0 0
        XTRIM q MAXLEN 0
        XREADGROUP GROUP g e STREAMS q 0
        XAUTOCLAIM q g e 0 0
        XINFO GROUPS q
        XINFO STREAM q
        XGROUP DESTROY q g
        XGROUP DESTROY q g
        XGROUP DESTROY none g
        XGROUP DESTROY q
        XINFO GROUPS q
        SET str 1
        XGROUP CREATE str g 0
        XGROUP CREATE str g 0 MKSTREAM
        XGROUP DESTROY str g
        XREADGROUP GROUP g c STREAMS str >
        XACK str g 1-1
        XPENDING str g
        XPENDING str g - + 1
        XAUTOCLAIM str g e 0 0
        ",
    )
    .await;
}

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

/// A stream's name, with ids and fields.
type Read = (String, Vec<(String, Vec<String>)>);

#[tokio::test]
async fn the_common_client_library_works_unchanged() {
    let ours = Served::plain().await;
    let client = redis::Client::open(format!("{}/?protocol=resp3", ours.url())).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let id: String = redis::cmd("XADD")
        .arg("s")
        .arg("*")
        .arg("f")
        .arg("v")
        .query_async(&mut connection)
        .await
        .unwrap();
    let read: Vec<Read> = redis::cmd("XREAD")
        .arg("STREAMS")
        .arg("s")
        .arg("0")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(
        read,
        [(
            "s".to_owned(),
            vec![(id, vec!["f".to_owned(), "v".to_owned()])]
        )]
    );
    let set: bool = redis::cmd("SET")
        .arg("k")
        .arg("v")
        .arg("EX")
        .arg(10)
        .query_async(&mut connection)
        .await
        .unwrap();
    assert!(set);
    ours.stop().await;
}
