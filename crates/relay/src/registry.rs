//! The sites and entities that are known, held in memory for looking up.

use std::collections::{HashMap, HashSet};

use crossway_core::address::{EntityId, Environment, Keyspace, SiteId, SiteStream};

use serde_json::{Map, Value};

use crate::manifest::{StoredEntity, StoredSite};

/// What is known of a site.
#[derive(Debug, Clone, Default)]
pub(crate) struct Site {
    /// Its streams in the spelling this daemon writes, one for each environment.
    streams: Vec<SiteStream>,
    /// The same streams in the other spelling, where such a key has been seen.
    others: Vec<SiteStream>,
    stored: StoredSite,
}

impl Site {
    /// Its stream in an environment.
    pub(crate) fn stream(&self, environment: &Environment) -> Option<&SiteStream> {
        self.streams
            .iter()
            .find(|stream| stream.environment == *environment)
    }

    /// The format that it wants to be spoken to in, where it says.
    pub(crate) fn native_format(&self) -> Option<&str> {
        native_format(&self.stored.metadata)
    }

    /// As it lies on the store.
    pub(crate) fn stored(&self) -> &StoredSite {
        &self.stored
    }
}

impl StoredEntity {
    /// The format that it wants to be spoken to in, where it says.
    pub(crate) fn native_format(&self) -> Option<&str> {
        native_format(&self.metadata)
    }
}

fn native_format(metadata: &Map<String, Value>) -> Option<&str> {
    metadata.get("native_format").and_then(Value::as_str)
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    sites: HashMap<SiteId, Site>,
    entities: HashMap<EntityId, (SiteId, StoredEntity)>,
}

/// An entry of the registry that can't be read, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name:?} in the registry can't be read and is passed over: {reason}")]
pub(crate) struct RegistryFault {
    kind: &'static str,
    name: String,
    reason: String,
}

impl Registry {
    /// Reads both hashes. What can't be read is left out and told.
    pub(crate) fn compile(
        keyspace: &Keyspace,
        sites: &HashMap<String, String>,
        entities: &HashMap<String, String>,
    ) -> (Registry, Vec<RegistryFault>) {
        let mut registry = Registry::default();
        let mut faults = Vec::new();
        for (name, body) in sites {
            faults.extend(registry.put_site(keyspace, name, body).err());
        }
        for (name, body) in entities {
            faults.extend(registry.put_entity(name, body).err());
        }
        (registry, faults)
    }

    /// Adds or replaces a site as it lies on the store.
    pub(crate) fn put_site(
        &mut self,
        keyspace: &Keyspace,
        name: &str,
        body: &str,
    ) -> Result<(), RegistryFault> {
        let fault = |reason: String| RegistryFault {
            kind: "site",
            name: name.chars().take(80).collect(),
            reason,
        };
        let site = SiteId::parse(name).map_err(|error| fault(error.to_string()))?;
        if site == *keyspace.namespace() {
            return Err(fault("that id is the daemon's own".to_owned()));
        }
        let stored: StoredSite =
            serde_json::from_str(body).map_err(|error| fault(error.to_string()))?;
        // A site that names no environment lives in all of them.
        let streams = keyspace
            .environments()
            .iter()
            .filter(|known| {
                stored.environments.is_empty()
                    || stored
                        .environments
                        .iter()
                        .any(|name| name == known.as_str())
            })
            .map(|environment| keyspace.unified(&site, environment))
            .collect();
        let others = self
            .sites
            .remove(&site)
            .map(|old| old.others)
            .unwrap_or_default();
        self.sites.insert(
            site,
            Site {
                streams,
                others,
                stored,
            },
        );
        Ok(())
    }

    /// Adds or replaces an entity as it lies on the store.
    pub(crate) fn put_entity(&mut self, name: &str, body: &str) -> Result<(), RegistryFault> {
        let fault = |reason: String| RegistryFault {
            kind: "entity",
            name: name.chars().take(80).collect(),
            reason,
        };
        let entity = EntityId::parse(name).map_err(|error| fault(error.to_string()))?;
        let stored: StoredEntity =
            serde_json::from_str(body).map_err(|error| fault(error.to_string()))?;
        let site = SiteId::parse(&stored.site).map_err(|error| fault(error.to_string()))?;
        self.entities.insert(entity, (site, stored));
        Ok(())
    }

    /// Takes over which keys of the other spelling had been seen.
    pub(crate) fn keep_seen(&mut self, old: &Registry) {
        for (id, site) in &old.sites {
            if let Some(new) = self.sites.get_mut(id) {
                new.others.clone_from(&site.others);
            }
        }
    }

    /// Notes that a site's stream exists in the spelling that this daemon doesn't write; tells
    /// whether that is news.
    pub(crate) fn saw_other(&mut self, stream: &SiteStream) -> bool {
        let Some(site) = self.sites.get_mut(&stream.site) else {
            return false;
        };
        let news = site.stream(&stream.environment).is_some() && !site.others.contains(stream);
        if news {
            site.others.push(stream.clone());
        }
        news
    }

    /// Whether a stream is one of those that are read.
    pub(crate) fn reads(&self, stream: &SiteStream) -> bool {
        let Some(site) = self.sites.get(&stream.site) else {
            return false;
        };
        site.streams.contains(stream) || site.others.contains(stream)
    }

    /// The site of this id.
    pub(crate) fn site(&self, id: &str) -> Option<(&SiteId, &Site)> {
        self.sites.get_key_value(id)
    }

    /// The entity of this id, and its site.
    pub(crate) fn entity(&self, id: &str) -> Option<(&EntityId, &SiteId, &StoredEntity)> {
        self.entities
            .get_key_value(id)
            .map(|(entity, (site, stored))| (entity, site, stored))
    }

    /// The number of sites.
    pub(crate) fn len(&self) -> usize {
        self.sites.len()
    }

    /// All sites.
    pub(crate) fn sites(&self) -> impl Iterator<Item = (&SiteId, &Site)> {
        self.sites.iter()
    }

    /// All entities with their sites.
    pub(crate) fn entities(&self) -> impl Iterator<Item = (&EntityId, &SiteId, &StoredEntity)> {
        self.entities
            .iter()
            .map(|(entity, (site, stored))| (entity, site, stored))
    }

    /// Every stream that is to be read.
    pub(crate) fn streams(&self) -> HashSet<SiteStream> {
        self.sites
            .values()
            .flat_map(|site| site.streams.iter().chain(&site.others))
            .cloned()
            .collect()
    }
}
