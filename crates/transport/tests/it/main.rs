//! What the stores promise, kept against real servers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that can't go on has failed"
)]

mod access;
mod cluster;
mod contract;
mod cut;
mod durability;
mod faults;
mod libraries;
mod parity;
mod store;
mod waiting;
mod wire;
