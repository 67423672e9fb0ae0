//! The client against a real store.

mod calls;
mod relay;
mod serving;
mod store;
