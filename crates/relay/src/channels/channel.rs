//! What a direct channel is, and how it lies on the store.

use std::collections::HashMap;
use std::time::Duration;

use crossway_core::address::{Environment, Keyspace, SiteId};
use serde_json::{Map, Value, json};

use crate::ids;

/// The longest time without use that a channel may be given, in seconds: 30 days. A server's own
/// count of the time without use begins anew after half a year.
pub(crate) const MAX_TTL: u64 = 30 * 24 * 3600;

/// How a channel ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// When it is closed.
    Persistent,
    /// When it is closed, or nobody has used it for this long.
    Temporary(Duration),
}

/// A direct channel. Nothing of it changes while it is open.
#[derive(Debug, Clone, PartialEq)]
pub struct Channel {
    /// Its id, which nobody can guess.
    pub(crate) id: String,
    /// Who opened it.
    pub(crate) source: SiteId,
    /// With whom.
    pub(crate) target: SiteId,
    /// The entity of the target that was asked for, or nothing.
    pub(crate) entity: String,
    /// The environment of both.
    pub(crate) environment: String,
    pub(crate) mode: Mode,
    /// When it was opened, ms since the epoch.
    pub(crate) opened_at: u64,
    pub(crate) metadata: Map<String, Value>,
}

/// What is stored of a channel can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("what is stored of channel {id} can't be read: {reason}")]
pub struct ChannelFault {
    id: String,
    reason: String,
}

impl Channel {
    /// Reads a channel's metadata as it lies on the store.
    ///
    /// # Errors
    /// [`ChannelFault`], which names the field.
    pub fn read(id: &str, stored: &HashMap<String, String>) -> Result<Channel, ChannelFault> {
        let fault = |reason: String| ChannelFault {
            id: id.chars().take(80).collect(),
            reason,
        };
        if !ids::is_channel(id) {
            return Err(fault("that is no channel's id".to_owned()));
        }
        let field = |name: &str| {
            let value = stored.get(name).map(String::as_str);
            value.ok_or_else(|| fault(format!("it has no {name}")))
        };
        let number = |name: &str| -> Result<u64, ChannelFault> {
            let value = field(name)?.parse();
            value.map_err(|_| fault(format!("{name} isn't a number")))
        };
        let site = |name: &str| -> Result<SiteId, ChannelFault> {
            let site = SiteId::parse(field(name)?);
            site.map_err(|error| fault(format!("{name}: {error}")))
        };
        let mode = match field("mode")? {
            "persistent" => Mode::Persistent,
            "temporary" => Mode::Temporary(Duration::from_secs(number("ttl_seconds")?)),
            _ => return Err(fault("its mode isn't one".to_owned())),
        };
        let metadata = serde_json::from_str(field("metadata")?);
        Ok(Channel {
            id: id.to_owned(),
            source: site("source_site")?,
            target: site("target_site")?,
            entity: stored.get("target_entity").cloned().unwrap_or_default(),
            environment: field("environment")?.to_owned(),
            mode,
            opened_at: number("opened_at")?,
            metadata: metadata.map_err(|error| fault(format!("metadata: {error}")))?,
        })
    }

    /// The fields that lie on the store.
    pub(crate) fn stored(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("source_site", self.source.to_string()),
            ("target_site", self.target.to_string()),
            ("target_entity", self.entity.clone()),
            ("environment", self.environment.clone()),
            ("mode", self.mode_word().to_owned()),
            ("opened_at", self.opened_at.to_string()),
            ("metadata", Value::Object(self.metadata.clone()).to_string()),
        ];
        if let Mode::Temporary(ttl) = self.mode {
            fields.push(("ttl_seconds", ttl.as_secs().to_string()));
        }
        fields
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The two sites that may use it.
    #[must_use]
    pub fn parties(&self) -> [&SiteId; 2] {
        [&self.source, &self.target]
    }

    /// Whether a site is one of the two.
    #[must_use]
    pub fn has(&self, site: &SiteId) -> bool {
        self.parties().contains(&site)
    }

    /// Whether it is in an environment.
    pub(crate) fn is_in(&self, environment: &Environment) -> bool {
        self.environment == environment.as_str()
    }

    fn mode_word(&self) -> &'static str {
        match self.mode {
            Mode::Persistent => "persistent",
            Mode::Temporary(_) => "temporary",
        }
    }

    /// As its parties are told of it. The group of each site is called as the site is.
    pub(crate) fn shown(&self, keyspace: &Keyspace) -> Value {
        let groups: Map<String, Value> = self
            .parties()
            .into_iter()
            .map(|site| (site.to_string(), site.as_str().into()))
            .collect();
        let mut shown = json!({
            "channel_id": self.id,
            "stream_key": &*keyspace.direct(&self.id),
            "mode": self.mode_word(),
            "groups": groups,
            "source_site": self.source.as_str(),
            "target_site": self.target.as_str(),
            "environment": self.environment,
            "opened_at": self.opened_at,
            "metadata": self.metadata,
        });
        if let Value::Object(fields) = &mut shown {
            if let Mode::Temporary(ttl) = self.mode {
                fields.insert("ttl_seconds".to_owned(), ttl.as_secs().into());
            }
            if !self.entity.is_empty() {
                fields.insert("target_entity".to_owned(), self.entity.clone().into());
            }
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(mode: Mode) -> Channel {
        Channel {
            id: "dc_0123456789abcdef0123456789abcdef".to_owned(),
            source: SiteId::parse("a").unwrap(),
            target: SiteId::parse("b").unwrap(),
            entity: "part".to_owned(),
            environment: "testing".to_owned(),
            mode,
            opened_at: 7,
            metadata: Map::from_iter([("n".to_owned(), json!(1))]),
        }
    }

    fn hash(channel: &Channel) -> HashMap<String, String> {
        let fields = channel.stored().into_iter();
        fields
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    #[test]
    fn a_channel_is_read_as_it_was_stored() {
        for mode in [Mode::Persistent, Mode::Temporary(Duration::from_secs(60))] {
            let channel = channel(mode);
            assert_eq!(
                Channel::read(&channel.id, &hash(&channel)).unwrap(),
                channel
            );
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let channel = channel(Mode::Temporary(Duration::from_secs(60)));
        for name in [
            "source_site",
            "target_site",
            "environment",
            "mode",
            "opened_at",
            "ttl_seconds",
            "metadata",
        ] {
            for wrong in [None, Some("")] {
                let mut stored = hash(&channel);
                match wrong {
                    None => drop(stored.remove(name)),
                    Some(text) => drop(stored.insert(name.to_owned(), text.to_owned())),
                }
                if name == "environment" && wrong.is_some() {
                    continue;
                }
                let fault = Channel::read(&channel.id, &stored).unwrap_err().to_string();
                assert!(fault.contains(name), "{name}: {fault}");
            }
        }
        assert!(Channel::read("index", &hash(&channel)).is_err());
    }
}
