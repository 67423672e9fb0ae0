//! What the stream stores promise, held against real ones.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails may panic"
)]

mod access;
mod contract;
mod cut;
mod faults;
mod store;
