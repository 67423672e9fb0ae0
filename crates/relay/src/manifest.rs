//! Registrations: as a service sends them, as a manifest file lists them, as the store keeps them.

use std::collections::BTreeMap;

use crossway_core::address::{EntityId, Environment, Keyspace, SiteId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The most entities of one site: every daemon holds all sites in memory and reads them together.
const MAX_ENTITIES: usize = 256;

/// Bytes of metadata that one site and its entities may have, for the same reason.
const MAX_METADATA: usize = 16 * 1024;

/// A site, as it registers.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// Its id.
    pub site: SiteId,
    /// The environments it lives in, at least one.
    pub environments: Vec<Environment>,
    /// Its entities and what is known of each.
    pub entities: BTreeMap<EntityId, Map<String, Value>>,
    /// What is known of the site, `native_format` for one.
    pub metadata: Map<String, Value>,
}

/// Why a registration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// It isn't the right JSON or YAML.
    #[error("{0}")]
    Form(String),
    /// A site or entity id that can't be one.
    #[error("{what} {id:?}: {reason}")]
    Name {
        /// `site` or `entity`.
        what: &'static str,
        /// The id, cut to a readable length.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An environment that isn't known.
    #[error("site {site}: environment {environment:?} isn't one of {known}")]
    Environment {
        /// The site.
        site: SiteId,
        /// What was given.
        environment: String,
        /// The known ones.
        known: String,
    },
    /// No environment at all.
    #[error("site {0}: at least one environment must be given")]
    Nowhere(SiteId),
    /// An id that belongs to the daemon itself.
    #[error("site {0}: that id is the daemon's own")]
    Reserved(SiteId),
    /// More is told of a site than the registry holds.
    #[error("site {site}: {what} is more than the registry holds")]
    TooMuch {
        /// The site.
        site: SiteId,
        /// What there is too much of.
        what: String,
    },
    /// Two registrations for one id.
    #[error("site {0} is listed twice")]
    Twice(SiteId),
}

/// The shape that services send and manifests hold.
#[derive(Deserialize)]
struct RawRegistration {
    id: String,
    #[serde(default)]
    environments: Vec<String>,
    #[serde(default)]
    entities: RawEntities,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
}

/// Entities are written as a list of ids, a list of objects, or an object of id to metadata.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawEntities {
    List(Vec<RawEntity>),
    Map(BTreeMap<String, Option<Map<String, Value>>>),
    Nothing(()),
}

impl Default for RawEntities {
    fn default() -> Self {
        RawEntities::Nothing(())
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawEntity {
    Id(String),
    Object {
        id: String,
        #[serde(default)]
        metadata: Option<Map<String, Value>>,
    },
}

impl RawRegistration {
    fn check(
        self,
        keyspace: &Keyspace,
        usual: &[Environment],
    ) -> Result<Registration, RegistrationError> {
        let site =
            SiteId::parse(&self.id).map_err(|reason| name_error("site", &self.id, &reason))?;
        if site == *keyspace.namespace() {
            return Err(RegistrationError::Reserved(site));
        }
        let mut environments = Vec::with_capacity(self.environments.len());
        for name in &self.environments {
            let known =
                keyspace
                    .environment(name)
                    .ok_or_else(|| RegistrationError::Environment {
                        site: site.clone(),
                        environment: name.chars().take(80).collect(),
                        known: keyspace
                            .environments()
                            .iter()
                            .map(Environment::as_str)
                            .collect::<Vec<_>>()
                            .join(", "),
                    })?;
            if !environments.contains(known) {
                environments.push(known.clone());
            }
        }
        if environments.is_empty() {
            environments.extend_from_slice(usual);
        }
        if environments.is_empty() {
            return Err(RegistrationError::Nowhere(site));
        }
        let listed: Vec<(String, Option<Map<String, Value>>)> = match self.entities {
            RawEntities::Nothing(()) => Vec::new(),
            RawEntities::Map(map) => map.into_iter().collect(),
            RawEntities::List(list) => list
                .into_iter()
                .map(|entity| match entity {
                    RawEntity::Id(id) => (id, None),
                    RawEntity::Object { id, metadata } => (id, metadata),
                })
                .collect(),
        };
        let too_much = |what: String| RegistrationError::TooMuch {
            site: site.clone(),
            what,
        };
        if listed.len() > MAX_ENTITIES {
            return Err(too_much(format!("{} entities", listed.len())));
        }
        let described = listed
            .iter()
            .filter_map(|(_, metadata)| metadata.as_ref())
            .chain(&self.metadata);
        let bytes: usize = described
            .map(|metadata| crate::directory::to_json(metadata).len())
            .sum();
        if bytes > MAX_METADATA {
            return Err(too_much(format!("{bytes} bytes of metadata")));
        }
        let mut entities = BTreeMap::new();
        for (id, metadata) in listed {
            let entity =
                EntityId::parse(&id).map_err(|reason| name_error("entity", &id, &reason))?;
            entities.insert(entity, metadata.unwrap_or_default());
        }
        Ok(Registration {
            site,
            environments,
            entities,
            metadata: self.metadata.unwrap_or_default(),
        })
    }
}

fn name_error(what: &'static str, id: &str, reason: &dyn std::fmt::Display) -> RegistrationError {
    RegistrationError::Name {
        what,
        id: id.chars().take(80).collect(),
        reason: reason.to_string(),
    }
}

impl Registration {
    /// Reads what a service sends with `register_service`. `usual` are the environments of one
    /// that names none.
    ///
    /// # Errors
    /// [`RegistrationError`].
    pub fn parse(
        json: &str,
        keyspace: &Keyspace,
        usual: &[Environment],
    ) -> Result<Registration, RegistrationError> {
        let raw: RawRegistration = serde_json::from_str(json)
            .map_err(|error| RegistrationError::Form(error.to_string()))?;
        raw.check(keyspace, usual)
    }

    /// A site of which nothing is known but that it has a stream.
    #[must_use]
    pub fn bare(site: SiteId, environment: Environment) -> Registration {
        Registration {
            site,
            environments: vec![environment],
            entities: BTreeMap::new(),
            metadata: Map::new(),
        }
    }
}

/// The sites that a file registers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Manifest {
    /// In the file's order.
    pub services: Vec<Registration>,
}

#[derive(Deserialize)]
struct RawManifest {
    services: Vec<RawRegistration>,
}

impl Manifest {
    /// Reads a manifest, YAML or JSON: `services:` with `id`, `environments`, `entities`, `metadata`.
    /// A service that names no environment lives in all that are known.
    ///
    /// # Errors
    /// [`RegistrationError`], which names the line or the service.
    pub fn parse(text: &str, keyspace: &Keyspace) -> Result<Manifest, RegistrationError> {
        let raw: RawManifest = serde_saphyr::from_str(text)
            .map_err(|error| RegistrationError::Form(error.to_string()))?;
        let mut services: Vec<Registration> = Vec::with_capacity(raw.services.len());
        for service in raw.services {
            let service = service.check(keyspace, keyspace.environments())?;
            if services.iter().any(|other| other.site == service.site) {
                return Err(RegistrationError::Twice(service.site));
            }
            services.push(service);
        }
        Ok(Manifest { services })
    }
}

/// A site, as it lies in the hash of sites.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoredSite {
    /// Names of its environments.
    #[serde(default)]
    pub environments: Vec<String>,
    /// What is known of it.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// When it was registered, milliseconds since the epoch.
    #[serde(default)]
    pub registered_at: u64,
    /// The entry of the register stream that it was registered by, which tells a second run of
    /// that from another registration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_by: Option<String>,
}

impl StoredSite {
    /// How a registration is kept.
    #[must_use]
    pub fn of(registration: &Registration, registered_at: u64) -> StoredSite {
        StoredSite {
            environments: registration
                .environments
                .iter()
                .map(ToString::to_string)
                .collect(),
            metadata: registration.metadata.clone(),
            registered_at,
            registered_by: None,
        }
    }
}

/// An entity, as it lies in the hash of entities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredEntity {
    /// The site it is a part of.
    pub site: String,
    /// What is known of it.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossway_core::address::Spelling;

    fn keyspace() -> Keyspace {
        Keyspace::new("gnode", "gnode", Spelling::Bare, &[]).unwrap()
    }

    #[test]
    fn a_manifest_lists_sites_with_entities_in_any_of_their_forms() {
        let text = "services:\n  - id: billing\n    environments: [production]\n    entities: [invoices]\n    metadata: {native_format: compact_json}\n  - id: stock\n    entities: [{id: shelf, metadata: {native_format: resp3}}]\n  - id: third\n    entities: {door: {a: 1}, wall: null}\n";
        let manifest = Manifest::parse(text, &keyspace()).unwrap();
        let [billing, stock, third] = &manifest.services[..] else {
            panic!("three services")
        };
        assert_eq!(billing.environments.len(), 1);
        assert_eq!(billing.metadata["native_format"], "compact_json");
        assert_eq!(stock.environments.len(), 4);
        assert_eq!(
            stock.entities[&EntityId::parse("shelf").unwrap()]["native_format"],
            "resp3"
        );
        assert_eq!(third.entities.len(), 2);
    }

    #[test]
    fn a_faulty_registration_names_what_is_wrong() {
        let cases = [
            (r#"{"id":"*","environments":["testing"]}"#, "site \"*\""),
            (r#"{"id":"a:b","environments":["testing"]}"#, "a:b"),
            (r#"{"id":"{a}","environments":["testing"]}"#, "{a}"),
            (r#"{"id":"a","environments":["moon"]}"#, "moon"),
            (r#"{"id":"a"}"#, "at least one"),
            (
                r#"{"id":"gnode","environments":["testing"]}"#,
                "daemon's own",
            ),
            (
                r#"{"id":"a","environments":["testing"],"entities":["b c"]}"#,
                "entity \"b c\"",
            ),
            ("{", "EOF"),
            ("[]", "invalid"),
        ];
        for (json, part) in cases {
            let error = Registration::parse(json, &keyspace(), &[])
                .unwrap_err()
                .to_string();
            assert!(error.contains(part), "{json}: {error}");
        }
        let twice = "services: [{id: a}, {id: a}]";
        assert!(
            Manifest::parse(twice, &keyspace())
                .unwrap_err()
                .to_string()
                .contains("twice")
        );
    }
}
