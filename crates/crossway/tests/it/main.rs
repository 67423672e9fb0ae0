//! What the program promises, kept with real processes and real servers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod losses;
mod traffic;
