//! A Valkey or Redis server as the stream store.

mod backoff;
mod codec;
mod connection;
mod dial;
mod encode;
mod entries;
mod frame;
mod url;

pub use url::{StoreUrl, StoreUrlError};
