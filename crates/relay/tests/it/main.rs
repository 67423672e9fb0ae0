//! What the relay promises, kept on both stores: within the process, and on a real server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[macro_use]
mod promises;

mod attacks;
mod bad_input;
mod crossing;
mod several;
mod translation;
mod world;
