//! What the relay knows: the registry and the policy, compiled and kept current.
//!
//! Nothing here is looked up on the store for a message. The store tells when a rule or a site
//! has changed, in order with the entries that are read ([`crossway_transport::streams::Batch::changed`]);
//! whoever is told asks for a [`Directory::refresh`] and waits for it before deciding anything,
//! so a change holds for whatever was sent after it was acknowledged. Only a name that isn't
//! known is asked of the store before it is refused.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use arc_swap::ArcSwap;
use crossway_core::address::SiteStream;
use crossway_core::code::{Code, Refusal};
use crossway_core::entry::EntryId;
use crossway_core::format::Formats;
use crossway_core::policy::Policy;
use crossway_transport::streams::{HashChange, Key, StoreError, Streams};
use tokio::sync::{mpsc, oneshot, watch};

use crate::counters::Counters;
use crate::manifest::{Registration, StoredEntity, StoredSite};
use crate::options::RelayOptions;
use crate::refresh::{Refresh, Refresher};
use crate::registry::Registry;

/// Refreshes that may wait at once; more than readers there can be.
const REFRESH_QUEUE: usize = 1024;

/// The registry and the policy.
pub(crate) struct Directory {
    store: Arc<dyn Streams>,
    options: ArcSwap<RelayOptions>,
    policy: ArcSwap<Policy>,
    formats: ArcSwap<Formats>,
    registry: RwLock<Registry>,
    refreshes: mpsc::Sender<Refresh>,
    /// Counts up whenever the set of streams to be read may have changed.
    pub(crate) streams_changed: watch::Sender<u64>,
    loaded: AtomicBool,
    counters: Arc<Counters>,
}

impl Directory {
    pub(crate) fn new(
        store: Arc<dyn Streams>,
        options: Arc<RelayOptions>,
        counters: Arc<Counters>,
    ) -> (Arc<Directory>, Refresher) {
        let (sender, receiver) = mpsc::channel(REFRESH_QUEUE);
        let directory = Arc::new(Directory {
            store,
            policy: ArcSwap::from_pointee(Policy::new(options.default_policy)),
            formats: ArcSwap::new(Arc::clone(&options.formats)),
            options: ArcSwap::new(options),
            registry: RwLock::default(),
            refreshes: sender,
            streams_changed: watch::Sender::new(0),
            loaded: AtomicBool::new(false),
            counters,
        });
        let refresher = Refresher::new(Arc::clone(&directory), receiver);
        (directory, refresher)
    }

    pub(crate) fn store(&self) -> &dyn Streams {
        &*self.store
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn options(&self) -> Arc<RelayOptions> {
        self.options.load_full()
    }

    pub(crate) fn set_options(&self, options: Arc<RelayOptions>) {
        self.options.store(options);
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
    }

    pub(crate) fn formats(&self) -> Arc<Formats> {
        self.formats.load_full()
    }

    pub(crate) fn set_formats(&self, formats: Formats) {
        self.formats.store(Arc::new(formats));
    }

    pub(crate) fn registry(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn registry_mut(&self) -> RwLockWriteGuard<'_, Registry> {
        self.registry
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether everything has been read at least once.
    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    pub(crate) fn set_loaded(&self, loaded: bool) {
        self.loaded.store(loaded, Ordering::Release);
    }

    fn announce_streams(&self) {
        self.streams_changed
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Reads policy and formats again; what it gives was read after this was called.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let stopped = || StoreError::Unreachable {
            at: "the directory".to_owned(),
            reason: "the relay is stopping".to_owned(),
        };
        let (sender, receiver) = oneshot::channel();
        self.refreshes.send(sender).await.map_err(|_| stopped())?;
        receiver.await.map_err(|_| stopped())?
    }

    /// Asks the store for a name that isn't known here.
    pub(crate) async fn look_up(&self, name: &str) -> Result<(), StoreError> {
        let options = self.options();
        let keyspace = &options.keyspace;
        let (sites, entities) = (keyspace.sites(), keyspace.entities());
        let site = self.store.hash_get(&sites, name);
        let (site, entity) = tokio::try_join!(site, self.store.hash_get(&entities, name))?;
        if let Some(body) = site {
            return self.know_site(name, &body).map_or(Ok(()), |()| Ok(()));
        }
        let Some(body) = entity else {
            return Ok(());
        };
        let site = {
            let mut registry = self.registry_mut();
            if let Err(fault) = registry.put_entity(name, &body) {
                tracing::warn!(%fault, "registry");
            }
            registry.entity(name).map(|(_, site, _)| site.clone())
        };
        if let Some(site) = site
            && let Some(body) = self
                .store
                .hash_get(&keyspace.sites(), site.as_str())
                .await?
        {
            let _ = self.know_site(site.as_str(), &body);
        }
        Ok(())
    }

    /// Takes a site into memory as it lies on the store.
    fn know_site(&self, name: &str, body: &str) -> Option<()> {
        let options = self.options();
        let put = self.registry_mut().put_site(&options.keyspace, name, body);
        match put {
            Ok(()) => {
                self.announce_streams();
                Some(())
            }
            Err(fault) => {
                tracing::warn!(%fault, "registry");
                None
            }
        }
    }

    /// Registers a site that isn't there; tells whether it was added. `by` is the entry that asked
    /// for it, where it may be run again.
    pub(crate) async fn add_site(
        &self,
        registration: &Registration,
        now_ms: u64,
        by: Option<EntryId>,
    ) -> Result<bool, DirectoryError> {
        let options = self.options();
        let full = {
            let registry = self.registry();
            registry.site(registration.site.as_str()).is_none()
                && registry.len() >= options.max_sites
        };
        if full {
            let message = format!(
                "{} sites are registered, which is the limit",
                options.max_sites
            );
            return Err(Refusal::new(Code::RegistryFull, message).into());
        }
        let body = to_json(&StoredSite {
            registered_by: by.map(|entry| entry.to_string()),
            ..StoredSite::of(registration, now_ms)
        });
        let added = self
            .store
            .hash_add(&options.keyspace.sites(), registration.site.as_str(), &body)
            .await?;
        if added {
            self.know_site(registration.site.as_str(), &body);
            tracing::info!(site = %registration.site, "a site was registered");
        }
        Ok(added)
    }

    /// Registers a site, replacing what was known of it.
    pub(crate) async fn replace_site(
        &self,
        registration: &Registration,
        now_ms: u64,
    ) -> Result<(), DirectoryError> {
        if self.add_site(registration, now_ms, None).await? {
            return Ok(());
        }
        let options = self.options();
        let body = to_json(&StoredSite::of(registration, now_ms));
        self.store
            .hash_set(&options.keyspace.sites(), registration.site.as_str(), &body)
            .await?;
        self.know_site(registration.site.as_str(), &body);
        Ok(())
    }

    /// Gives a site its entities, all or none; one that belongs to another site stays there.
    pub(crate) async fn add_entities(
        &self,
        registration: &Registration,
    ) -> Result<(), DirectoryError> {
        if registration.entities.is_empty() {
            return Ok(());
        }
        let options = self.options();
        let site = registration.site.as_str();
        let mut taken = None;
        let written = self
            .store
            .hash_update(&options.keyspace.entities(), &mut |stored| {
                taken = registration.entities.keys().find(|id| {
                    let owner = stored
                        .get(id.as_str())
                        .and_then(|body| serde_json::from_str::<StoredEntity>(body).ok());
                    owner.is_some_and(|entity| entity.site != site)
                });
                if taken.is_some() {
                    return Vec::new();
                }
                let entity = |(id, metadata): (
                    &crossway_core::address::EntityId,
                    &serde_json::Map<_, _>,
                )| {
                    let body = StoredEntity {
                        site: site.to_owned(),
                        metadata: metadata.clone(),
                    };
                    HashChange::Set(id.to_string(), to_json(&body))
                };
                registration.entities.iter().map(entity).collect()
            })
            .await?;
        if let Some(id) = taken {
            return Err(Refusal::new(
                Code::NameTaken,
                format!("entity {id} belongs to another site"),
            )
            .into());
        }
        let mut registry = self.registry_mut();
        for change in written {
            if let HashChange::Set(id, body) = change {
                let _ = registry.put_entity(&id, &body);
            }
        }
        Ok(())
    }

    /// Removes a site and its entities; tells whether it was there.
    pub(crate) async fn remove_site(&self, site: &str) -> Result<bool, DirectoryError> {
        let options = self.options();
        let there = self
            .store
            .hash_remove(&options.keyspace.sites(), site)
            .await?;
        self.store
            .hash_update(&options.keyspace.entities(), &mut |stored| {
                let of_site = |body: &String| {
                    serde_json::from_str::<StoredEntity>(body)
                        .is_ok_and(|entity| entity.site == site)
                };
                let its_own = stored.iter().filter(|(_, body)| of_site(body));
                its_own
                    .map(|(id, _)| HashChange::Remove(id.clone()))
                    .collect()
            })
            .await?;
        self.take_registry(self.read_registry().await?);
        Ok(there)
    }

    /// Takes in a stream that was seen, so that it is read: registers its site, adds its
    /// environment, or notes its spelling.
    pub(crate) async fn adopt(
        &self,
        stream: &SiteStream,
        now_ms: u64,
    ) -> Result<(), DirectoryError> {
        let known = {
            let registry = self.registry();
            registry
                .site(stream.site.as_str())
                .is_some_and(|(_, site)| site.stream(&stream.environment).is_some())
        };
        let options = self.options();
        if stream.site == *options.keyspace.namespace() {
            return Ok(());
        }
        if !known {
            let bare = Registration::bare(stream.site.clone(), stream.environment.clone());
            if !self.add_site(&bare, now_ms, None).await? {
                self.add_environment(stream).await?;
            }
        }
        if options.keyspace.unified(&stream.site, &stream.environment) != *stream
            && self.registry_mut().saw_other(stream)
        {
            self.announce_streams();
        }
        Ok(())
    }

    async fn add_environment(&self, stream: &SiteStream) -> Result<(), DirectoryError> {
        let options = self.options();
        let (site, environment) = (stream.site.as_str(), stream.environment.as_str());
        let sites = options.keyspace.sites();
        self.store
            .hash_update(&sites, &mut |stored| {
                let Some(mut body) = stored
                    .get(site)
                    .and_then(|body| serde_json::from_str::<StoredSite>(body).ok())
                else {
                    return Vec::new();
                };
                if body.environments.is_empty()
                    || body.environments.iter().any(|name| name == environment)
                {
                    return Vec::new();
                }
                body.environments.push(environment.to_owned());
                vec![HashChange::Set(site.to_owned(), to_json(&body))]
            })
            .await?;
        if let Some(body) = self.store.hash_get(&sites, site).await? {
            self.know_site(site, &body);
        }
        Ok(())
    }

    /// Registers the manifest's sites that aren't there.
    pub(crate) async fn register_manifest(&self, now_ms: u64) -> Result<(), StoreError> {
        for registration in &self.options().manifest.services {
            let added = match self.add_site(registration, now_ms, None).await {
                Ok(_) => self.add_entities(registration).await,
                Err(error) => Err(error),
            };
            match added {
                Ok(()) => {}
                Err(DirectoryError::Refused(refusal)) => {
                    tracing::error!(site = %registration.site, %refusal, "a site of the manifest wasn't registered");
                }
                Err(DirectoryError::Store(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the registry as it lies on the store.
    pub(crate) async fn read_registry(&self) -> Result<Registry, StoreError> {
        let options = self.options();
        let keyspace = &options.keyspace;
        let sites = self.store.hash_all(&keyspace.sites()).await?;
        let entities = self.store.hash_all(&keyspace.entities()).await?;
        let (fresh, faults) = Registry::compile(keyspace, &sites, &entities);
        for fault in faults {
            tracing::warn!(%fault, "registry");
        }
        Ok(fresh)
    }

    /// Puts a registry that was read into force.
    pub(crate) fn take_registry(&self, mut fresh: Registry) {
        {
            let mut registry = self.registry_mut();
            fresh.keep_seen(&registry);
            self.counters
                .sites
                .set(i64::try_from(fresh.len()).unwrap_or(i64::MAX));
            *registry = fresh;
        }
        self.announce_streams();
    }

    /// Which streams that nobody reads yet exist in the other spelling.
    pub(crate) async fn look_for_other_spellings(&self) -> Result<(), StoreError> {
        let options = self.options();
        let candidates: Vec<SiteStream> = {
            let registry = self.registry();
            let read: HashSet<SiteStream> = registry.streams();
            let other = |stream: &SiteStream| {
                options
                    .keyspace
                    .unified_other(&stream.site, &stream.environment)
            };
            let plain = registry.sites().flat_map(|(_, site)| {
                options
                    .keyspace
                    .environments()
                    .iter()
                    .filter_map(|environment| site.stream(environment))
            });
            plain
                .map(other)
                .filter(|stream| !read.contains(stream))
                .collect()
        };
        for chunk in candidates.chunks(500) {
            let keys: Vec<Key> = chunk.iter().map(|stream| Key::clone(&stream.key)).collect();
            let there = self.store.exist(&keys).await?;
            for (stream, _) in chunk.iter().zip(there).filter(|(_, there)| *there) {
                if self.registry_mut().saw_other(stream) {
                    self.announce_streams();
                }
            }
        }
        Ok(())
    }
}

/// Why a change of the directory didn't happen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    /// It isn't allowed.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The store couldn't do it.
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// JSON of a value whose keys are all strings, which can't fail.
pub(crate) fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
