//! What the relay promises, kept on both stores: within the process, and on a real server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[macro_use]
mod promises;

mod access;
mod attacks;
mod bad_input;
mod broadcast;
mod channels;
mod cluster;
mod crossing;
mod limits;
mod own_commands;
mod policy;
mod several;
mod sites;
mod telemetry;
mod traces;
mod translation;
mod world;
