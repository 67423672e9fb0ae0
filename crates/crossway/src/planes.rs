//! What carries messages, put together from the configuration: built first, so that its counters
//! are registered before the admin pages are served, then run until told to stop.

use std::net::SocketAddr;
use std::sync::Arc;

use crossway_core::address::NameError;
use crossway_relay::{Discovery, RelayOptions};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admin::{Readiness, Ready};
use crate::config::{self, Loaded};

/// The planes couldn't be put together, or couldn't go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanesError {
    /// A name in the configuration can't stand in a key.
    #[error("the configuration: {0}")]
    Name(#[from] NameError),
}

/// All planes of one daemon.
pub(crate) struct Planes {
    relay: Ready,
}

impl Planes {
    /// Puts the planes together. It must not wait for a store that isn't there yet.
    ///
    /// # Errors
    /// [`PlanesError`].
    pub(crate) async fn build(
        loaded: &Loaded,
        _registry: &mut Registry,
        readiness: &Readiness,
    ) -> Result<Planes, PlanesError> {
        let node = loaded.config.node_name();
        let _options = relay_options(loaded, node.as_str(), node.as_str())?;
        Ok(Planes {
            relay: readiness.part("relay"),
        })
    }

    /// Where the embedded store answers; `None` where it isn't used.
    pub(crate) fn embedded(&self) -> Option<SocketAddr> {
        None
    }

    /// Carries messages until `stop`, finishes what is in flight, and leaves. `config` gives each
    /// configuration that is taken meanwhile.
    ///
    /// # Errors
    /// [`PlanesError`] where going on is no use.
    pub(crate) async fn run(
        self,
        _config: watch::Receiver<Arc<Loaded>>,
        stop: CancellationToken,
    ) -> Result<(), PlanesError> {
        self.relay.down("no relay is joined to this program");
        stop.cancelled().await;
        Ok(())
    }
}

/// The relay's options, from the configuration. `member` is this daemon's identity among several
/// on one store.
///
/// # Errors
/// [`NameError`] where a word can't stand in a key.
fn relay_options(loaded: &Loaded, node: &str, member: &str) -> Result<RelayOptions, NameError> {
    let relay = &loaded.config.relay;
    let mut options = RelayOptions::new(relay.keyspace()?, node, member);
    options.group = relay.group.site().as_str().into();
    options.reply_ttl = relay.reply_ttl_ms.duration();
    options.default_policy = relay.default_policy.into();
    options.administrators = relay
        .administrators
        .iter()
        .map(|name| name.site().clone())
        .collect();
    options.max_attempts = relay.max_attempts.get();
    options.discovery = match relay.discovery {
        config::Discovery::Registry => Discovery::Registry,
        config::Discovery::Scan => Discovery::Scan,
    };
    options.max_entry_bytes = relay.max_entry_bytes.get();
    options.max_fields = relay.max_fields.get();
    options.max_sites = relay.max_sites.get();
    options.manifest = loaded.manifest.clone();
    Ok(options)
}
