//! What the program promises, kept with real processes and real servers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test's own parts may panic: that is its report"
)]

mod acl;
mod cli;
mod config;
mod conversation;
mod dead;
mod demo;
mod documents;
mod full_disk;
mod languages;
mod losses;
mod program;
mod store;
mod traces;
mod traffic;
mod up;
