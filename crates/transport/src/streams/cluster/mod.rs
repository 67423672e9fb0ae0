//! A cluster of Valkey or Redis servers as the stream store.
//!
//! Keys lie on many nodes, and nothing can be done atomically on two of them. So a settlement
//! whose keys share a slot is one step; another is taken apart (`settle`), in an order that can
//! lose nothing and may repeat: what it adds to other slots comes first, and the last step takes
//! the entry off the pending list. [`crate::streams::Streams::is_atomic`] says so.
//!
//! `mapper` keeps the map of slots, `links` has a connection to each node and follows
//! redirections, `reader` reads what the nodes say was written.

mod links;
mod map;
mod mapper;
mod places;
mod reader;
mod settle;
mod slot;
mod streams;
mod work;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_rustls::TlsConnector;

use self::links::Links;
use self::mapper::Maps;
use super::StoreError;
use super::valkey::StoreUrl;
use super::valkey::backoff::spread;
use super::valkey::dial::{Dialer, connector, unreachable};
use super::valkey::url::{Credentials, Endpoint, Host};

/// Sets of connections that are kept for the next call.
const MAX_IDLE: usize = 4;

/// A cluster. It finds its nodes by itself, again whenever they change. Its tasks end when it is dropped.
pub struct Cluster {
    nodes: Arc<Nodes>,
    maps: Arc<Maps>,
    /// Each call has connections to itself meanwhile.
    idle: Mutex<Vec<Links>>,
}

/// How the nodes of a cluster are reached.
pub(crate) struct Nodes {
    seeds: Vec<Host>,
    credentials: Option<Credentials>,
    connector: Option<TlsConnector>,
    /// How long a write waits for a replica to have it.
    confirm: Duration,
    at: Arc<str>,
}

impl Nodes {
    fn dialer(&self, host: &Host) -> Result<Dialer, StoreError> {
        Dialer::of_node(host, self.credentials.clone(), self.connector.as_ref())
    }
}

impl Cluster {
    /// Prepares to connect, and doesn't wait for a cluster that isn't there yet; must be called
    /// within a runtime.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] when the certificates that the URL names can't be read, or it
    /// isn't the URL of a cluster.
    pub async fn open(url: &StoreUrl) -> Result<Cluster, StoreError> {
        let at: Arc<str> = url.to_string().into();
        let Endpoint::Cluster {
            seeds,
            tls,
            confirm,
        } = &url.endpoint
        else {
            return Err(unreachable(&at, "this isn't the URL of a cluster"));
        };
        let connector = match tls {
            Some(authority) => Some(connector(authority.clone(), &at).await?),
            None => None,
        };
        let nodes = Arc::new(Nodes {
            seeds: seeds.clone(),
            credentials: url.credentials.clone(),
            connector,
            confirm: *confirm,
            at,
        });
        Ok(Cluster {
            maps: Arc::new(Maps::start(Arc::clone(&nodes))),
            nodes,
            idle: Mutex::new(Vec::new()),
        })
    }

    /// Connections for one call.
    fn links(&self) -> Links {
        let kept = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        kept.unwrap_or_else(|| {
            let name = format!("crossway-{:016x}", spread());
            Links::new(Arc::clone(&self.nodes), Arc::clone(&self.maps), name, None)
        })
    }

    fn give_back(&self, links: Links) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(links);
        }
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({})", self.nodes.at)
    }
}
