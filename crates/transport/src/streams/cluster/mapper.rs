//! The task that keeps the map of slots current.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::Nodes;
use super::map::SlotMap;
use crate::streams::StoreError;
use crate::streams::valkey::connection::Connection;
use crate::streams::valkey::dial::unreachable;
use crate::streams::valkey::url::Host;

/// How long a node may take to give its map.
const NODE_DEADLINE: Duration = Duration::from_secs(1);
/// How often the map is asked for where nobody says that it is wrong.
const ROUTINE: Duration = Duration::from_secs(5);
/// Between two maps, so that a cluster that fails over isn't asked without end.
const PAUSE: Duration = Duration::from_millis(50);
/// How long somebody waits for a newer map.
const PATIENCE: Duration = Duration::from_millis(500);

/// The newest map, and the way to ask for a newer one. The task ends with this value.
pub(crate) struct Maps {
    map: watch::Receiver<Arc<SlotMap>>,
    wanted: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Maps {
    /// Starts asking.
    pub(crate) fn start(nodes: Arc<Nodes>) -> Maps {
        let (sender, map) = watch::channel(Arc::new(SlotMap::default()));
        let wanted = Arc::new(Notify::new());
        let task = tokio::spawn(keep(nodes, sender, Arc::clone(&wanted)));
        Maps { map, wanted, task }
    }

    pub(crate) fn current(&self) -> Arc<SlotMap> {
        Arc::clone(&self.map.borrow())
    }

    /// Asks for a newer map and gives it, or after half a second the one there is.
    pub(crate) async fn renewed(&self) -> Arc<SlotMap> {
        let mut map = self.map.clone();
        map.mark_unchanged();
        self.wanted.notify_one();
        // Nothing new within the time is an answer, too.
        let _ = timeout(PATIENCE, map.changed()).await;
        self.current()
    }

    /// Asks for a newer map.
    pub(crate) fn doubt(&self) {
        self.wanted.notify_one();
    }
}

impl Drop for Maps {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep(nodes: Arc<Nodes>, maps: watch::Sender<Arc<SlotMap>>, wanted: Arc<Notify>) {
    let mut connections = HashMap::new();
    loop {
        let known = Arc::clone(&maps.borrow());
        let hosts = known.masters.iter().map(|master| &master.host);
        let mut hosts: Vec<Host> = hosts.chain(&nodes.seeds).cloned().collect();
        hosts.dedup();
        if let Some(map) = discover(&nodes, &hosts, &mut connections).await {
            if map != *known {
                tracing::info!(store = %nodes.at, masters = map.masters.len(), "the cluster's slots");
            }
            connections.retain(|host, _| hosts.contains(host));
            maps.send_replace(Arc::new(map));
        }
        sleep(PAUSE).await;
        tokio::select! {
            () = wanted.notified() => {}
            () = sleep(ROUTINE) => {}
        }
    }
}

/// The map of the first node that is in good standing with the others, or else of any.
async fn discover(
    nodes: &Nodes,
    hosts: &[Host],
    connections: &mut HashMap<Host, Connection>,
) -> Option<SlotMap> {
    let mut doubtful = None;
    for host in hosts {
        // Taken out while it is used, so that one that is out of step isn't used again.
        let kept = connections.remove(host);
        let asked = timeout(NODE_DEADLINE, ask(nodes, host, kept)).await;
        match asked {
            Ok(Ok((map, good, connection))) => {
                connections.insert(host.clone(), connection);
                if good {
                    return Some(map);
                }
                doubtful.get_or_insert(map);
            }
            Ok(Err(error)) => tracing::debug!(%error, "asking a node for the map of slots"),
            Err(_) => tracing::debug!(node = %host, "a node gave no map of slots in time"),
        }
    }
    doubtful
}

async fn ask(
    nodes: &Nodes,
    host: &Host,
    kept: Option<Connection>,
) -> Result<(SlotMap, bool, Connection), StoreError> {
    let mut connection = match kept {
        Some(connection) => connection,
        None => Connection::open(&nodes.dialer(host)?, "crossway-map").await?,
    };
    let state = connection
        .must("CLUSTER INFO", &[b"CLUSTER", b"INFO"])
        .await?;
    let good =
        String::from_utf8_lossy(state.text().unwrap_or_default()).contains("cluster_state:ok");
    let answer = connection
        .must("CLUSTER SLOTS", &[b"CLUSTER", b"SLOTS"])
        .await?;
    let map = SlotMap::read(&answer, host)
        .ok_or_else(|| unreachable(&host.to_string(), "its map of slots can't be read"))?;
    Ok((map, good, connection))
}
