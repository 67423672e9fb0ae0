//! What carries messages, put together from the configuration: built first, so that its counters
//! are registered before the admin pages are served, then run until told to stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crossway_core::address::NameError;
use crossway_relay::{Discovery, Relay, RelayError, RelayOptions, Traces};
use crossway_transport::streams::cluster::Cluster;
use crossway_transport::streams::embedded::server::{Password, Server, ServerOptions};
use crossway_transport::streams::embedded::{Embedded, EmbeddedOptions, Sync};
use crossway_transport::streams::valkey::{StoreUrlError, Valkey};
use crossway_transport::streams::{StoreError, Streams};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admin::{Readiness, Ready};
use crate::config::{self, Config, Loaded, Store};
use crate::identity::{Identity, IdentityError};
use crate::traces::{CertificatesError, Exporter};

/// How long what is in flight may take to finish when the daemon is told to stop.
const LEAVING: Duration = Duration::from_secs(10);

/// How long spans that wait may take to be exported then.
const EXPORTING: Duration = Duration::from_secs(3);

/// Between two looks at how things stand.
const LOOK: Duration = Duration::from_millis(500);

/// The planes couldn't be put together, or couldn't go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanesError {
    /// A name in the configuration can't stand in a key.
    #[error("the configuration: {0}")]
    Name(#[from] NameError),
    /// The folder for state can't be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The store's URL isn't one.
    #[error(transparent)]
    Url(#[from] StoreUrlError),
    /// The store can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The embedded store's address is taken.
    #[error("embedded.listen: {at}: {reason}")]
    Listen {
        /// The address.
        at: SocketAddr,
        /// What the system said.
        reason: std::io::Error,
    },
    /// Spans can't be exported.
    #[error(transparent)]
    Traces(#[from] CertificatesError),
    /// The relay can't go on.
    #[error(transparent)]
    Relay(#[from] RelayError),
}

/// All planes of one daemon.
pub(crate) struct Planes {
    relay: Relay,
    ready: Ready,
    /// The embedded store's listener, where that is used.
    served: Option<Served>,
    identity: Identity,
    exporter: Option<Exporter>,
}

/// The embedded store, served to the services of this machine.
struct Served {
    at: SocketAddr,
    close: CancellationToken,
    task: JoinHandle<()>,
}

impl Planes {
    /// Puts the planes together. It doesn't wait for a store that isn't there yet.
    ///
    /// # Errors
    /// [`PlanesError`].
    pub(crate) async fn build(
        loaded: &Loaded,
        registry: &mut Registry,
        readiness: &Readiness,
    ) -> Result<Planes, PlanesError> {
        let config = &loaded.config;
        let identity = Identity::claim(&config.data_dir)?;
        let node = config.node_name();
        let exporter = Exporter::start(&config.traces, node.as_str(), registry).await?;
        let options = relay_options(loaded, identity.name(), exporter.as_ref())?;
        let (store, served): (Arc<dyn Streams>, _) = match &config.relay.store {
            Store::Embedded => {
                let (store, served) = embedded(config).await?;
                (store, Some(served))
            }
            Store::Url(url) => {
                let url = url.store()?;
                if url.is_cluster() {
                    (Arc::new(Cluster::open(&url).await?), None)
                } else {
                    (Arc::new(Valkey::open(&url).await?), None)
                }
            }
        };
        Ok(Planes {
            relay: Relay::start(store, options, registry),
            ready: readiness.part("relay"),
            served,
            identity,
            exporter,
        })
    }

    /// Where the embedded store answers; `None` where it isn't used.
    pub(crate) fn embedded(&self) -> Option<SocketAddr> {
        self.served.as_ref().map(|served| served.at)
    }

    /// Carries messages until `stop`, finishes what is in flight, and leaves. `config` gives each
    /// configuration that is taken meanwhile.
    ///
    /// # Errors
    /// [`PlanesError`] where going on is no use.
    pub(crate) async fn run(
        self,
        mut config: watch::Receiver<Arc<Loaded>>,
        stop: CancellationToken,
    ) -> Result<(), PlanesError> {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let outcome = loop {
            tokio::select! {
                () = stop.cancelled() => break Ok(()),
                error = self.relay.failed() => break Err(error.into()),
                _ = look.tick() => self.look().await,
                changed = config.changed() => if changed.is_ok() {
                    let loaded = Arc::clone(&config.borrow_and_update());
                    match relay_options(&loaded, self.identity.name(), self.exporter.as_ref()) {
                        Ok(options) => self.relay.reload(options).await,
                        Err(error) => tracing::error!(%error, "the relay keeps its options"),
                    }
                } else {
                    stop.cancelled().await;
                    break Ok(());
                },
            }
        };
        self.ready.down("stopping");
        if !self.relay.stop(LEAVING).await {
            tracing::warn!(
                "not everything in flight was finished in time; it is taken up by the next start"
            );
        }
        if let Some(exporter) = self.exporter
            && !exporter.stop(EXPORTING).await
        {
            tracing::warn!("not all spans could be exported in time");
        }
        if let Some(served) = self.served {
            served.close.cancel();
            if tokio::time::timeout(LEAVING, served.task).await.is_err() {
                tracing::warn!("some clients of the embedded store didn't let go");
            }
        }
        outcome
    }

    async fn look(&self) {
        let state = self.relay.readiness().await;
        if state.ready {
            self.ready.up();
        } else if state.store != "up" {
            self.ready.down(state.store);
        } else if !state.directory {
            self.ready.down("reading the registry and the policy");
        } else {
            self.ready.down("joining the daemons on this store");
        }
    }
}

/// Opens the embedded store and serves it.
async fn embedded(config: &Config) -> Result<(Arc<Embedded>, Served), PlanesError> {
    let at = config.embedded.listen;
    let listen = |reason| PlanesError::Listen { at, reason };
    let options = EmbeddedOptions {
        dir: config.data_dir.join("embedded"),
        sync: match config.embedded.sync {
            config::Sync::Always => Sync::Always,
            config::Sync::EverySecond => Sync::EverySecond,
        },
    };
    let opening = tokio::task::spawn_blocking(move || Embedded::open(options));
    let store = opening.await.map_err(|error| StoreError::Disk {
        path: config.data_dir.display().to_string(),
        reason: error.to_string(),
    })??;
    let listener = TcpListener::bind(at).await.map_err(listen)?;
    let at = listener.local_addr().map_err(listen)?;
    let password = config.embedded.password.as_ref();
    let options = ServerOptions {
        password: password.map(|password| Password::new(password.expose())),
        ..ServerOptions::default()
    };
    let close = CancellationToken::new();
    let task = tokio::spawn(Server::serve(
        listener,
        Arc::clone(&store),
        options,
        close.clone(),
    ));
    Ok((store, Served { at, close, task }))
}

/// The relay's options, from the configuration. `member` is this daemon's identity among several
/// on one store, `exporter` takes spans of crossings.
///
/// # Errors
/// [`NameError`] where a word can't stand in a key.
fn relay_options(
    loaded: &Loaded,
    member: &str,
    exporter: Option<&Exporter>,
) -> Result<RelayOptions, NameError> {
    let relay = &loaded.config.relay;
    let node = loaded.config.node_name();
    let mut options = RelayOptions::new(relay.keyspace()?, node.as_str(), member);
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
    options.max_channels = relay.max_channels.get();
    options.manage_access = relay.manage_access;
    options.max_len = relay.max_len.into();
    options.rates = (&relay.rate).into();
    options.manifest = loaded.manifest.clone();
    options.formats = Arc::clone(loaded.formats.formats());
    options.traces = exporter.map(|exporter| Traces {
        ratio: loaded.config.traces.ratio.ratio(),
        spans: exporter.spans(),
    });
    Ok(options)
}
