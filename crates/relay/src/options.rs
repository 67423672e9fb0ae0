//! What a relay can be told.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crossway_core::address::{Keyspace, SiteId};
use crossway_core::format::Formats;
use crossway_core::policy::Action;

use crate::limiter::RateLimits;
use crate::manifest::Manifest;
use crate::traces::Traces;

/// How sites are found that nobody registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Discovery {
    /// Registration, manifest, and, where the store tells of new streams, their first entry.
    #[default]
    Registry,
    /// Also by looking for keys that are unified streams, every few seconds.
    Scan,
}

/// The options of a relay.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// The names of all keys.
    pub keyspace: Keyspace,
    /// This daemon's node name, which stands in `sn` of what it writes.
    pub node: Arc<str>,
    /// This daemon's identity among several on one store. It outlives a restart, and never
    /// do two live processes have the same.
    pub member: Arc<str>,
    /// The consumer group that the daemons read as.
    pub group: Arc<str>,
    /// How long a relayed command may be answered.
    pub reply_ttl: Duration,
    /// What happens to a message that no rule speaks for.
    pub default_policy: Action,
    /// The sites that may change things for others.
    pub administrators: HashSet<SiteId>,
    /// How often a delivery that the store refuses is tried before it goes to the dead stream.
    pub max_attempts: u32,
    /// How sites are found.
    pub discovery: Discovery,
    /// The largest entry that is taken in, in bytes of names and values.
    pub max_entry_bytes: usize,
    /// The most fields an entry may have.
    pub max_fields: usize,
    /// The most sites that the registry may have.
    pub max_sites: usize,
    /// Entries that a dead stream keeps.
    pub dead_max_len: u64,
    /// Entries that a stream keeps of those that everybody has acknowledged, about.
    pub max_len: u64,
    /// The most direct channels that one site may have opened.
    pub max_channels: usize,
    /// Whether the parties of a direct channel are given access to it on the store, and lose it when
    /// it closes; the daemon's user must be allowed to change users.
    pub manage_access: bool,
    /// How much each source may send; no limit unless set.
    pub rates: RateLimits,
    /// Sites that are registered at the start.
    pub manifest: Manifest,
    /// The formats that are known without anybody registering them.
    pub formats: Arc<Formats>,
    /// Which crossings are recorded as spans; `None` records nothing.
    pub traces: Option<Traces>,
}

impl RelayOptions {
    /// The defaults that the documentation names.
    #[must_use]
    pub fn new(keyspace: Keyspace, node: &str, member: &str) -> RelayOptions {
        RelayOptions {
            keyspace,
            node: node.into(),
            member: member.into(),
            group: "crossway".into(),
            reply_ttl: Duration::from_secs(30),
            default_policy: Action::Allow,
            administrators: HashSet::new(),
            max_attempts: 5,
            discovery: Discovery::Registry,
            max_entry_bytes: 8 * 1024 * 1024,
            max_fields: 512,
            max_sites: 100_000,
            dead_max_len: 10_000,
            max_len: 100_000,
            max_channels: 100,
            manage_access: false,
            rates: RateLimits::default(),
            manifest: Manifest::default(),
            formats: Arc::new(Formats::builtin()),
            traces: None,
        }
    }
}
