//! The client against a real store.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test's own parts may panic: that is its report"
)]

mod batches;
mod calls;
mod examples;
mod relay;
mod serving;
mod store;
