//! The configuration: these structs are its only description. What they say is what is parsed,
//! what `crossway schema` prints, and what an unknown key is compared with.

mod checks;
mod fault;
mod formats;
mod load;
mod manifest;
mod overrides;
mod place;
mod rate;
mod traces;
mod values;

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use crossway_core::address::{Environment, Keyspace, NameError, SiteId, Spelling};
use crossway_core::policy::Action;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use checks::needs_restart;
pub(crate) use fault::Faults;
pub(crate) use load::{Loaded, load};
pub(crate) use rate::Rates;
pub(crate) use traces::{Endpoint, Header, Traces};
pub(crate) use values::{
    EnvironmentName, Filter, Limit, Milliseconds, Secret, SiteName, Store, StoreUrl,
};

/// The whole configuration of a Crossway daemon. Everything has a default; an empty file is valid.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The folder where state is kept. Made when it is missing.
    pub(crate) data_dir: PathBuf,
    /// The name of this daemon among several; the machine's name unless given.
    pub(crate) node: Option<SiteName>,
    /// What is logged, and how.
    pub(crate) log: Log,
    /// The pages for operators.
    pub(crate) admin: Admin,
    /// The stream store inside the daemon.
    pub(crate) embedded: Embedded,
    /// Messages between services.
    pub(crate) relay: Relay,
    /// Where spans of crossings are sent.
    pub(crate) traces: Traces,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            data_dir: PathBuf::from("crossway-data"),
            node: None,
            log: Log::default(),
            admin: Admin::default(),
            embedded: Embedded::default(),
            relay: Relay::default(),
            traces: Traces::default(),
        }
    }
}

/// What is logged, and how. Logs go to standard error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    /// Lines for people, or one JSON object a line.
    pub(crate) format: LogFormat,
    /// `error`, `warn`, `info`, `debug` or `trace`, also for parts: `info,crossway_relay=debug`.
    pub(crate) level: Filter,
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// The pages for operators: `/healthz`, `/readyz`, `/metrics`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Admin {
    /// Where they are served, as ADDRESS:PORT; port 0 takes a free one.
    pub(crate) listen: SocketAddr,
}

impl Default for Admin {
    fn default() -> Admin {
        Admin {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9400)),
        }
    }
}

/// The stream store inside the daemon; used when `relay.store` is `embedded`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Embedded {
    /// Where it answers the Redis protocol, as ADDRESS:PORT. Beyond loopback it needs a password.
    pub(crate) listen: SocketAddr,
    /// When a write counts as kept.
    pub(crate) sync: Sync,
    /// The password that clients give; none unless set.
    #[serde(skip_serializing)]
    pub(crate) password: Option<Secret>,
}

impl Default for Embedded {
    fn default() -> Embedded {
        Embedded {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 6390)),
            sync: Sync::default(),
            password: None,
        }
    }
}

/// When a write to the embedded store counts as kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sync {
    /// When the disk has it: nothing acknowledged is lost when the machine stops.
    #[default]
    Always,
    /// When the operating system has it: up to a second is lost when the machine stops.
    EverySecond,
}

/// Messages between services over streams.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Relay {
    /// `embedded`, or the URL of a Redis or Valkey server or cluster: `redis://`, `rediss://`,
    /// `unix://` or `redis+cluster://`.
    pub(crate) store: Store,
    /// The first word of the daemon's own keys, and the site id that it speaks as.
    pub(crate) namespace: SiteName,
    /// The word in the middle of every key.
    pub(crate) keyspace: EnvironmentName,
    /// Environments besides testing, staging, acceptance and production.
    pub(crate) environments: Vec<EnvironmentName>,
    /// Whether keys are written with a cluster hash tag, as `{site}:…`. Both are read.
    pub(crate) hash_tags: bool,
    /// How long a reply is waited for, in milliseconds, at most a day.
    pub(crate) reply_ttl_ms: Milliseconds,
    /// What happens to a message that no rule speaks for.
    pub(crate) default_policy: DefaultPolicy,
    /// The sites that may change rules, formats and other sites' registrations.
    pub(crate) administrators: Vec<SiteName>,
    /// How often an entry is tried before it goes to the dead stream.
    pub(crate) max_attempts: NonZeroU32,
    /// How sites are found that didn't register.
    pub(crate) discovery: Discovery,
    /// A file of services to be registered at start and on reload.
    pub(crate) manifest: Option<PathBuf>,
    /// A folder of format definitions, JSON or YAML, beside those that are built in.
    pub(crate) formats: Option<PathBuf>,
    /// The consumer group that the daemon reads as.
    pub(crate) group: SiteName,
    /// The largest entry that is carried, in bytes of all names and values, at most 512 MiB.
    pub(crate) max_entry_bytes: Limit<536_870_912>,
    /// The most fields that a carried entry may have, at most 1024.
    pub(crate) max_fields: Limit<1024>,
    /// The most sites that may be registered.
    pub(crate) max_sites: NonZeroUsize,
    /// The most direct channels that one site may have opened.
    pub(crate) max_channels: NonZeroUsize,
    /// Whether the users of a direct channel's sites are given access to it on the store.
    pub(crate) manage_access: bool,
    /// About how many entries a stream keeps; what a group hasn't acknowledged stays anyhow.
    pub(crate) max_len: Limit<1_000_000_000>,
    /// How much each source, and each pair of source and target, may send.
    pub(crate) rate: Rates,
}

impl Default for Relay {
    fn default() -> Relay {
        Relay {
            store: Store::default(),
            namespace: SiteName::literal("gnode"),
            keyspace: EnvironmentName::literal("gnode"),
            environments: Vec::new(),
            hash_tags: false,
            reply_ttl_ms: Milliseconds::literal(30_000),
            default_policy: DefaultPolicy::default(),
            administrators: Vec::new(),
            max_attempts: NonZeroU32::MIN.saturating_add(4),
            discovery: Discovery::default(),
            manifest: None,
            formats: None,
            group: SiteName::literal("crossway"),
            // A document or a picture fits; what doesn't is better kept elsewhere and referred to.
            max_entry_bytes: Limit::literal(8 << 20),
            max_fields: Limit::literal(512),
            // Ten times what has been measured.
            max_sites: NonZeroUsize::MIN.saturating_add(99_999),
            // Every daemon holds all channels in memory; a hundred partners are many.
            max_channels: NonZeroUsize::MIN.saturating_add(99),
            // It takes a user that may change users.
            manage_access: false,
            // Some tens of megabytes of ordinary messages.
            max_len: Limit::literal(100_000),
            rate: Rates::default(),
        }
    }
}

/// What happens to a message that no rule speaks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DefaultPolicy {
    /// It is carried.
    #[default]
    Allow,
    /// It is refused.
    Deny,
}

impl From<DefaultPolicy> for Action {
    fn from(policy: DefaultPolicy) -> Action {
        match policy {
            DefaultPolicy::Allow => Action::Allow,
            DefaultPolicy::Deny => Action::Deny,
        }
    }
}

/// How sites are found that didn't register.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Discovery {
    /// They aren't.
    #[default]
    Registry,
    /// By looking for keys that are named like a site's stream.
    Scan,
}

impl Relay {
    /// The names of all keys, as these settings have them.
    ///
    /// # Errors
    /// [`NameError`]; never for a configuration that was loaded, whose names were checked.
    pub(crate) fn keyspace(&self) -> Result<Keyspace, NameError> {
        let spelling = if self.hash_tags {
            Spelling::Tagged
        } else {
            Spelling::Bare
        };
        let extra: Vec<Environment> = self
            .environments
            .iter()
            .map(|name| name.environment().clone())
            .collect();
        Keyspace::new(
            self.namespace.site().as_str(),
            self.keyspace.environment().as_str(),
            spelling,
            &extra,
        )
    }
}

impl Config {
    /// The name of this daemon: as given, or the machine's.
    pub(crate) fn node_name(&self) -> SiteId {
        match &self.node {
            Some(node) => node.site().clone(),
            None => {
                let machine = rustix::system::uname();
                let machine = machine.nodename().to_string_lossy();
                SiteId::parse(&machine)
                    .unwrap_or_else(|_| SiteName::literal("crossway").site().clone())
            }
        }
    }

    /// The store's URL, for programs of this machine. It holds the password where there is one.
    pub(crate) fn store_url(&self) -> StoreUrl {
        match &self.relay.store {
            Store::Url(url) => url.clone(),
            Store::Embedded => {
                StoreUrl::local(self.embedded.listen, self.embedded.password.as_ref())
            }
        }
    }
}
