//! The task that keeps the directory current.
//!
//! Whoever learns that something has changed asks it to read again; requests that wait are
//! answered together. It is also the one to notice that the store has lost its data.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_core::format::{Definition, Formats};
use crossway_core::policy::Policy;
use crossway_transport::streams::StoreError;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::directory::{Directory, to_json};
use crate::options::RelayOptions;

/// A request to read again, answered when that was done.
pub(crate) type Refresh = oneshot::Sender<Result<(), StoreError>>;

/// Field of the members' hash that is there as long as the store keeps its data.
const EPOCH_FIELD: &str = "epoch";

/// The registry is read again at most this often; names that are missing meanwhile are asked for.
const REGISTRY_PAUSE: Duration = Duration::from_millis(250);

/// The task's side of a [`Directory`].
pub(crate) struct Refresher {
    directory: Arc<Directory>,
    refreshes: mpsc::Receiver<Refresh>,
    /// The rules as they were compiled last.
    rules: HashMap<String, String>,
    /// The registered formats as they were compiled last, and those they were added to.
    formats: HashMap<String, String>,
    known_formats: Option<Arc<Formats>>,
    epoch: Option<String>,
    registry_read: Option<Instant>,
    registry_stale: bool,
}

impl Refresher {
    pub(crate) fn new(directory: Arc<Directory>, refreshes: mpsc::Receiver<Refresh>) -> Refresher {
        Refresher {
            directory,
            refreshes,
            rules: HashMap::new(),
            formats: HashMap::new(),
            known_formats: None,
            epoch: None,
            registry_read: None,
            registry_stale: true,
        }
    }

    /// Answers refreshes until cancelled.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut retry = Duration::from_millis(50);
        loop {
            let due = self.registry_due();
            let mut waiting = Vec::new();
            tokio::select! {
                () = stop.cancelled() => return,
                first = self.refreshes.recv() => {
                    let Some(first) = first else { return };
                    waiting.push(first);
                    while let Ok(more) = self.refreshes.try_recv() {
                        waiting.push(more);
                    }
                }
                () = tokio::time::sleep(due.unwrap_or_default()), if due.is_some() => {}
            }
            if !waiting.is_empty() {
                self.registry_stale = true;
                let outcome = self.read_rules().await;
                for waiter in waiting {
                    // Whoever has stopped waiting has stopped altogether.
                    let _ = waiter.send(outcome.clone());
                }
            }
            if self.registry_due() == Some(Duration::ZERO) {
                match self.read_registry().await {
                    Ok(()) => {
                        self.registry_stale = false;
                        retry = Duration::from_millis(50);
                        self.directory.set_loaded(self.epoch.is_some());
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the registry can't be read; what is known stays in force");
                        retry = (retry * 2).min(Duration::from_secs(2));
                    }
                }
                self.registry_read = Some(Instant::now() + retry - Duration::from_millis(50));
            }
        }
    }

    /// How long until the registry is to be read again, if it is.
    fn registry_due(&self) -> Option<Duration> {
        if !self.registry_stale {
            return None;
        }
        let next = self.registry_read.map(|read| read + REGISTRY_PAUSE);
        Some(next.map_or(Duration::ZERO, |next| {
            next.saturating_duration_since(Instant::now())
        }))
    }

    async fn read_registry(&mut self) -> Result<(), StoreError> {
        let directory = Arc::clone(&self.directory);
        let options = directory.options();
        loop {
            let fresh = directory.read_registry().await?;
            if self.is_the_same_store(&options).await? {
                directory.take_registry(fresh);
                return Ok(());
            }
        }
    }

    async fn read_rules(&mut self) -> Result<(), StoreError> {
        let directory = Arc::clone(&self.directory);
        let options = directory.options();
        let (mut rules, mut formats);
        // Read first and asked about afterwards: what is read of a store that has lost its data in
        // the meantime isn't believed.
        loop {
            rules = directory
                .store()
                .hash_all(&options.keyspace.policy())
                .await?;
            formats = directory
                .store()
                .hash_all(&options.keyspace.formats())
                .await?;
            if self.is_the_same_store(&options).await? {
                break;
            }
        }
        let (policy, faults) = Policy::compile(
            options.default_policy,
            rules.iter().map(|(k, v)| (k.as_str(), v.as_str())),
        );
        if rules != self.rules {
            for fault in faults {
                tracing::error!(%fault, "a policy rule can't be read and denies what it may speak for");
            }
            self.rules = rules;
        }
        directory
            .counters()
            .rules
            .set(i64::try_from(self.rules.len()).unwrap_or(i64::MAX));
        directory.set_policy(policy);
        self.take_formats(formats, &options.formats);
        Ok(())
    }

    /// Adds the formats that lie on the store to those that are known anyway.
    fn take_formats(&mut self, stored: HashMap<String, String>, known: &Arc<Formats>) {
        let unchanged = self
            .known_formats
            .as_ref()
            .is_some_and(|before| Arc::ptr_eq(before, known));
        if unchanged && stored == self.formats {
            return;
        }
        let mut formats = Formats::clone(known);
        let mut in_order: Vec<(&String, &String)> = stored.iter().collect();
        in_order.sort();
        for (name, body) in in_order {
            let registered = Definition::parse_json(body)
                .map_err(|fault| fault.to_string())
                .and_then(|definition| {
                    formats
                        .register(definition)
                        .map_err(|fault| fault.to_string())
                });
            if let Err(fault) = registered {
                tracing::error!(name, %fault, "a registered format can't be used");
            }
        }
        self.directory.set_formats(formats);
        self.formats = stored;
        self.known_formats = Some(Arc::clone(known));
    }

    /// A store that has lost everything (a flush, a restart without persistence) would seem to
    /// have no rules, and so allow what was denied. What was known is written back.
    async fn is_the_same_store(&mut self, options: &RelayOptions) -> Result<bool, StoreError> {
        let directory = Arc::clone(&self.directory);
        let members = options.keyspace.members();
        let found = directory.store().hash_get(&members, EPOCH_FIELD).await?;
        if found.is_some() && found == self.epoch {
            return Ok(true);
        }
        if self.epoch.is_some() && found.is_none() {
            self.restore(options).await?;
        }
        if found.is_none() {
            let epoch = crate::ids::random_name();
            directory
                .store()
                .hash_add(&members, EPOCH_FIELD, &epoch)
                .await?;
        }
        self.epoch = directory.store().hash_get(&members, EPOCH_FIELD).await?;
        Ok(false)
    }

    async fn restore(&mut self, options: &RelayOptions) -> Result<(), StoreError> {
        let store = self.directory.store();
        let (sites, entities): (Vec<_>, Vec<_>) = {
            let registry = self.directory.registry();
            let sites = registry
                .sites()
                .map(|(id, site)| (id.to_string(), to_json(site.stored())))
                .collect();
            let entities = registry
                .entities()
                .map(|(id, _, stored)| (id.to_string(), to_json(stored)))
                .collect();
            (sites, entities)
        };
        for (pair, rule) in &self.rules {
            store
                .hash_add(&options.keyspace.policy(), pair, rule)
                .await?;
        }
        for (name, definition) in &self.formats {
            store
                .hash_add(&options.keyspace.formats(), name, definition)
                .await?;
        }
        for (id, body) in &sites {
            store.hash_add(&options.keyspace.sites(), id, body).await?;
        }
        for (id, body) in &entities {
            store
                .hash_add(&options.keyspace.entities(), id, body)
                .await?;
        }
        self.directory.counters().store_losses.inc();
        tracing::error!(
            rules = self.rules.len(),
            sites = sites.len(),
            entities = entities.len(),
            "the store has lost its data: messages that were on it are gone; rules, formats and registrations were written back"
        );
        Ok(())
    }
}
