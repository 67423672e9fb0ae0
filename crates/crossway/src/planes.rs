//! What carries messages, put together from the configuration: built first, so that its counters
//! are registered before the admin pages are served, then run until told to stop.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admin::{Readiness, Ready};
use crate::config::Config;

/// The planes couldn't be put together, or couldn't go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanesError {
    /// What, on what, and what to try.
    #[error("{0}")]
    #[allow(dead_code)] // The store adapters are joined here.
    Failed(String),
}

/// All planes of one daemon.
pub(crate) struct Planes {
    relay: Ready,
}

impl Planes {
    /// Puts the planes together; what they need of the outside is opened when they run.
    ///
    /// # Errors
    /// [`PlanesError`].
    pub(crate) async fn build(
        _config: &Config,
        _registry: &mut Registry,
        readiness: &Readiness,
    ) -> Result<Planes, PlanesError> {
        Ok(Planes {
            relay: readiness.part("relay"),
        })
    }

    /// Where the embedded store answers; `None` where another store is used.
    pub(crate) fn embedded(&self) -> Option<std::net::SocketAddr> {
        None
    }

    /// Carries messages until `stop`, finishes what is in flight, and leaves. `config` gives each
    /// configuration that is taken meanwhile.
    ///
    /// # Errors
    /// [`PlanesError`] where going on is no use.
    pub(crate) async fn run(
        self,
        _config: watch::Receiver<Arc<Config>>,
        stop: CancellationToken,
    ) -> Result<(), PlanesError> {
        self.relay.down("the relay is not joined to the program");
        stop.cancelled().await;
        Ok(())
    }
}
