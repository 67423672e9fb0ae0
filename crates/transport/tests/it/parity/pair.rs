//! A real server and ours, asked the same and compared.

use std::net::SocketAddr;

use crossway_harness::RedisServer;
use redis_protocol::resp2::types::OwnedFrame as Frame2;
use redis_protocol::resp3::types::OwnedFrame as Frame3;

use crate::wire::{Client, Frame, Served};

/// A real server and ours, each spoken to in one version of the protocol.
pub(crate) struct Pair {
    real: Client,
    ours: Client,
    three: bool,
    pub(crate) differences: Vec<String>,
}

impl Pair {
    pub(crate) async fn connect(real: SocketAddr, ours: SocketAddr, three: bool) -> Pair {
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
    pub(crate) async fn run(&mut self, line: &str) {
        let real = normal(line, self.real.call(line).await);
        let ours = normal(line, self.ours.call(line).await);
        if real != ours {
            let version = if self.three { 3 } else { 2 };
            self.differences.push(format!(
                "{line}   (version {version})\n  real: {real:?}\n  ours: {ours:?}"
            ));
        }
    }

    pub(crate) fn judge(&self) {
        assert!(
            self.differences.is_empty(),
            "{} answers differ:\n{}",
            self.differences.len(),
            self.differences.join("\n")
        );
    }
}

/// The answer without what is allowed to differ: when something was delivered, and the order of
/// a hash.
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
        Frame::Two(frame) if name == "xinfo" => Frame::Two(timeless_two(frame)),
        Frame::Three(frame) if name == "xinfo" => Frame::Three(timeless_three(frame)),
        other => other,
    }
}

/// Larger than any count in these tests: a moment, in ms since the epoch.
const A_MOMENT: i64 = 1_000_000_000_000;

fn timeless_two(frame: Frame2) -> Frame2 {
    match frame {
        Frame2::Integer(number) if number > A_MOMENT => Frame2::Integer(0),
        Frame2::Array(items) => Frame2::Array(items.into_iter().map(timeless_two).collect()),
        other => other,
    }
}

fn timeless_three(frame: Frame3) -> Frame3 {
    match frame {
        Frame3::Number { data, attributes } if data > A_MOMENT => Frame3::Number {
            data: 0,
            attributes,
        },
        Frame3::Array { data, attributes } => Frame3::Array {
            data: data.into_iter().map(timeless_three).collect(),
            attributes,
        },
        Frame3::Map { data, attributes } => Frame3::Map {
            data: data
                .into_iter()
                .map(|(name, value)| (name, timeless_three(value)))
                .collect(),
            attributes,
        },
        other => other,
    }
}

pub(crate) fn address(server: &RedisServer) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.port()))
}

/// Runs a script on a fresh pair of servers, in both versions of the protocol.
pub(crate) async fn same_answers(script: &str) {
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
