//! A Valkey or Redis server as the stream store.
//!
//! What is hot goes over narrow connections of our own: `codec`, `frame` and `entries` read,
//! `encode` writes, `connection` owns the socket. A `reader` has one for each lane of streams
//! (`lane`, `lanes`, `cursors`) and one on which it settles (`session`), with one script
//! (`settle`). What is cold goes through the `redis` crate over one shared connection (`cold`).

pub(super) mod backoff;
#[cfg(feature = "bare-loop")]
pub mod bare;
mod codec;
mod cold;
pub(super) mod connection;
mod cursors;
pub(super) mod dial;
pub(super) mod encode;
pub(super) mod entries;
pub(super) mod frame;
pub(super) mod hash;
pub(super) mod idle;
mod lane;
mod lanes;
mod reader;
mod script;
mod session;
pub(super) mod settle;
mod streams;
pub(super) mod trim;
pub(super) mod url;

use std::sync::Arc;

pub use url::{StoreUrl, StoreUrlError};

use self::cold::Cold;
use self::connection::Connection;
use self::dial::Dialer;
use self::hash::Updates;
use super::StoreError;

/// One Valkey or Redis server.
///
/// It connects again by itself whenever a connection breaks. Its tasks end when it is dropped.
pub struct Valkey {
    dialer: Arc<Dialer>,
    cold: Cold,
    updates: Updates,
}

impl Valkey {
    /// Prepares to connect, and doesn't wait for a store that isn't there yet; must be called
    /// within a runtime.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] when the certificates that the URL names can't be read;
    /// [`StoreError::Refused`] when it is the URL of a cluster.
    pub async fn open(url: &StoreUrl) -> Result<Valkey, StoreError> {
        let dialer = Arc::new(Dialer::new(url.clone()).await?);
        Ok(Valkey {
            cold: Cold::start(Arc::clone(&dialer)),
            updates: Updates::new(Arc::clone(&dialer)),
            dialer,
        })
    }

    /// Connects, and makes sure that the store lets us in.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] when nothing answers there, or the certificate isn't trusted;
    /// [`StoreError::Refused`] when the credentials are wrong or the server is part of a cluster.
    pub async fn connect(url: &StoreUrl) -> Result<Valkey, StoreError> {
        let valkey = Valkey::open(url).await?;
        // The same greeting as every later connection, but its refusal is told.
        let mut probe = Connection::open(&valkey.dialer, "crossway").await?;
        probe.must("PING", &[b"PING"]).await?;
        Ok(valkey)
    }
}

impl std::fmt::Debug for Valkey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Valkey({})", self.dialer.at)
    }
}
