//! A manifest: a YAML file of services that are registered at start and on reload.

use std::collections::BTreeSet;
use std::fmt;

use crossway_core::address::{EntityId, Environment, SiteId};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

/// The sites that a file names, in its order.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Manifest {
    pub(crate) sites: Vec<Site>,
}

/// A site to be registered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Site {
    #[serde(serialize_with = "shown")]
    pub(crate) id: SiteId,
    #[serde(serialize_with = "all_shown")]
    pub(crate) environments: Vec<Environment>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) entities: Vec<Entity>,
}

/// A part of a site that can be addressed by itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Entity {
    #[serde(serialize_with = "shown")]
    pub(crate) id: EntityId,
    pub(crate) metadata: Map<String, Value>,
}

/// Why a manifest can't be used. It begins with `:LINE:COLUMN` where the place is known, so that
/// it reads on after the file's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ManifestError {
    /// Not YAML, or not of this shape.
    #[error("{place}: {reason}")]
    Shape { place: String, reason: String },
    /// Something in one of the services.
    #[error(": service {number}: {reason}")]
    Service { number: usize, reason: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    services: Vec<Service>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Service {
    id: String,
    #[serde(default = "production")]
    environments: Vec<String>,
    #[serde(default)]
    entities: Vec<Part>,
    #[serde(default)]
    metadata: Map<String, Value>,
}

/// An entity, by its id alone or with what is known of it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Part {
    Id(String),
    Known {
        id: String,
        #[serde(default)]
        metadata: Map<String, Value>,
    },
}

fn production() -> Vec<String> {
    vec!["production".to_owned()]
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// [`ManifestError`], which says which service is wrong.
    pub(crate) fn parse(text: &str) -> Result<Manifest, ManifestError> {
        let options = serde_saphyr::options! { strict_booleans: true };
        let file: File = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let place = error
                .location()
                .map(|at| format!(":{}:{}", at.line(), at.column()))
                .unwrap_or_default();
            ManifestError::Shape {
                place,
                reason: first_line(&error.without_snippet()),
            }
        })?;
        let mut seen = BTreeSet::new();
        let mut entities_seen = BTreeSet::new();
        let mut sites = Vec::with_capacity(file.services.len());
        for (number, service) in (1..).zip(file.services) {
            let wrong = |reason: String| ManifestError::Service { number, reason };
            let site = site(service).map_err(wrong)?;
            if !seen.insert(site.id.clone()) {
                return Err(wrong(format!("site {} is named twice", site.id)));
            }
            for entity in &site.entities {
                if !entities_seen.insert(entity.id.clone()) {
                    return Err(wrong(format!("entity {} is named twice", entity.id)));
                }
            }
            sites.push(site);
        }
        Ok(Manifest { sites })
    }
}

fn site(service: Service) -> Result<Site, String> {
    let id = SiteId::parse(&service.id).map_err(|error| format!("id {:?}: {error}", service.id))?;
    let environments = service
        .environments
        .iter()
        .map(|name| {
            Environment::parse(name).map_err(|error| format!("environment {name:?}: {error}"))
        })
        .collect::<Result<Vec<_>, String>>()?;
    if environments.is_empty() {
        return Err(format!(
            "{id} is in no environment; leave the key out for production"
        ));
    }
    let entities = service
        .entities
        .into_iter()
        .map(entity)
        .collect::<Result<Vec<_>, String>>()?;
    Ok(Site {
        id,
        environments,
        metadata: service.metadata,
        entities,
    })
}

fn entity(part: Part) -> Result<Entity, String> {
    let (id, metadata) = match part {
        Part::Id(id) => (id, Map::new()),
        Part::Known { id, metadata } => (id, metadata),
    };
    let id = EntityId::parse(&id).map_err(|error| format!("entity {id:?}: {error}"))?;
    Ok(Entity { id, metadata })
}

fn first_line(text: &impl fmt::Display) -> String {
    text.to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn shown<S: Serializer>(name: &impl fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(name)
}

fn all_shown<S: Serializer>(names: &[Environment], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(names.iter().map(Environment::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_and_their_entities_are_read() {
        let manifest = Manifest::parse(
            "services:\n  - id: billing\n    environments: [staging, production]\n    entities:\n      - ledger\n      - {id: mailer, metadata: {native_format: compact_json}}\n  - id: shop\n",
        )
        .unwrap();
        assert_eq!(manifest.sites.len(), 2);
        assert_eq!(manifest.sites[0].environments.len(), 2);
        assert_eq!(
            manifest.sites[0].entities[1].metadata["native_format"],
            "compact_json"
        );
        assert_eq!(manifest.sites[1].environments[0].as_str(), "production");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let shape = Manifest::parse("services:\n  - id: a\n    colour: red\n")
            .unwrap_err()
            .to_string();
        assert!(shape.contains("colour"), "{shape}");
        assert!(shape.starts_with(":3:"), "{shape}");
        let name = Manifest::parse("services:\n  - id: a\n  - id: \"b:c\"\n")
            .unwrap_err()
            .to_string();
        assert!(name.contains("service 2") && name.contains("b:c"), "{name}");
        let twice = Manifest::parse("services:\n  - id: a\n  - id: a\n")
            .unwrap_err()
            .to_string();
        assert!(twice.contains("twice"), "{twice}");
    }
}
