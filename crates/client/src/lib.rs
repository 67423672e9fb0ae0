//! For programs that talk through Crossway: ask another service, tell it something, answer others.
//!
//! A [`Client`] speaks for one site in one environment. It writes to that site's own stream and
//! reads from it, and needs no access to anybody else's: the daemon carries what is meant for
//! others.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use crossway_client::Client;
//!
//! let client = Client::connect("redis://127.0.0.1:6390", "shop", "production").await?;
//! let reply = client.call("billing", "charge", &serde_json::json!({"cents": 1250}), Duration::from_secs(5)).await?;
//! println!("{}", reply.text());
//! # Ok(()) }
//! ```

mod answering;
mod answers;
mod batch;
mod client;
mod command;
mod dial;
mod entry;
mod error;
mod link;
mod names;
mod options;
mod reply;
mod serve;
mod store;
mod worker;

pub use client::Client;
pub use command::{Command, Failure};
pub use dial::redis_client;
pub use error::{CallError, ClientError, StoreError};
pub use options::Builder;
pub use reply::Reply;
pub use serve::{Serve, Serving};

/// The page that a newcomer reads; its Rust is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
