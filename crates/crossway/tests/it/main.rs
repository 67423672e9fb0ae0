//! The program from the outside: arguments, standard output and error, exit status.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test's own parts may panic: that is its report"
)]

mod cli;
mod config;
mod program;
mod store;
mod up;
