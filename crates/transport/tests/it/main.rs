//! Promises of the stores, kept against real servers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that can't go on has failed"
)]

mod durability;
mod parity;
mod wire;
