//! Real servers for tests: started on free ports, killed, paused and restarted.
//!
//! A test that talks to a store talks to a real one. [`RedisServer::start`] gives a
//! `redis-server` of its own in a folder of its own; it ends with the value. Nothing here sleeps to
//! wait: [`eventually()`] asks again and again until a deadline, and names what never came.
//!
//! ```no_run
//! # async fn example() {
//! let mut server = crossway_harness::RedisServer::builder().append_only(true).start().await;
//! server.kill();
//! server.restart().await;
//! assert!(server.url().starts_with("redis://127.0.0.1:"));
//! # }
//! ```
//!
//! Everything here panics when it fails, since a test can do nothing better.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "this crate only serves tests, where a panic is the report"
)]

mod certificates;
mod cluster;
mod daemon;
mod eventually;
mod port;
mod redis_server;
pub mod store;

pub use cluster::RedisCluster;
pub use daemon::Daemon;
pub use eventually::eventually;
pub use redis_server::{RedisServer, RedisServerBuilder};
