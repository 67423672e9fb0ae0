//! `crossway acl show|apply`: the store's own users, with the rules that follow from the names of keys.

mod apply;
mod password;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use clap::{Args, Subcommand};
use crossway_core::address::SiteId;
use crossway_relay::{Channel, daemon_rules, site_rules, user_of};
use redis::Value as Answered;
use serde_json::{Value, json};

use super::output::Output;
use super::store::Store;
use super::{Answer, CliError, Common};
use crate::config;

/// What to do with the store's users.
#[derive(Debug, Subcommand)]
pub(super) enum Acl {
    /// Show the rules, as they can be typed at the store; no passwords.
    Show(Whom),
    /// Put the rules into force. Users that exist keep their passwords.
    Apply(apply::Apply),
}

/// Whose rules.
#[derive(Debug, Args)]
pub(super) struct Whom {
    /// A site; may be given several times. Without any site and without --daemon: all that are
    /// registered, and the daemon.
    #[arg(long)]
    site: Vec<String>,
    /// The daemon's user.
    #[arg(long)]
    daemon: bool,
    /// What the daemon's user is called.
    #[arg(long, default_value = "crossway", value_name = "NAME")]
    daemon_user: String,
}

/// A user, and what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
struct User {
    name: String,
    /// Whose it is; the daemon's where it is no site's.
    site: Option<SiteId>,
    rules: Vec<String>,
}

impl User {
    fn shown(&self) -> Value {
        json!({
            "user": self.name,
            "site": self.site.as_ref().map(SiteId::as_str),
            "daemon": self.site.is_none(),
            "rules": self.rules,
        })
    }
}

impl Acl {
    pub(super) async fn run(self, common: &Common, output: Output) -> Result<Answer, CliError> {
        match self {
            Acl::Show(whom) => {
                let users = whom.users(&mut open(common).await?).await?;
                let lines = users
                    .iter()
                    .map(|user| format!("ACL SETUSER {} {}\n", user.name, user.rules.join(" ")));
                let text: String = lines.collect();
                let users: Vec<Value> = users.iter().map(User::shown).collect();
                output.answer(&json!({ "users": users }), text)?;
                Ok(Answer::Yes)
            }
            Acl::Apply(apply) => apply.run(common, output).await,
        }
    }
}

/// Connects to a server that has users with rules of the kind that is written here.
async fn open(common: &Common) -> Result<Store, CliError> {
    if common.url.is_none()
        && matches!(common.configuration()?.relay.store, config::Store::Embedded)
    {
        return Err(CliError::Input(
            "the embedded store has no users, only embedded.password; access rules need a Redis 7 or Valkey server in relay.store or --url"
                .to_owned(),
        ));
    }
    let mut store = Store::open(common, Duration::ZERO).await?;
    let info = store.run(redis::cmd("INFO").arg("server")).await?;
    let info: String = redis::from_redis_value(info).unwrap_or_default();
    let version = info
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"))
        .unwrap_or_default()
        .trim();
    let major: Option<u32> = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok());
    match major {
        Some(major) if major >= 7 && info.contains("redis_mode:") => Ok(store),
        _ => Err(CliError::Input(format!(
            "access rules need Redis 7 or Valkey: before that a key can't be given for reading only; this server is {version:?}"
        ))),
    }
}

impl Whom {
    /// The users with the rules that they should have now.
    async fn users(&self, store: &mut Store) -> Result<Vec<User>, CliError> {
        let everybody = self.site.is_empty() && !self.daemon;
        let mut sites = BTreeSet::new();
        for name in &self.site {
            let site = SiteId::parse_spelled(name)
                .map_err(|error| CliError::Input(format!("--site {name:?}: {error}")))?;
            sites.insert(site);
        }
        if everybody {
            let registered = store.hash(&store.keys.sites().clone()).await?;
            let known = registered
                .keys()
                .filter_map(|name| SiteId::parse(name).ok());
            sites.extend(known.filter(|site| site != store.keys.namespace()));
        }
        let channels = channels(store).await?;
        let mut users = Vec::with_capacity(sites.len() + 1);
        for site in sites {
            if site == *store.keys.namespace() {
                return Err(CliError::Input(format!(
                    "{site} is the daemon itself; see --daemon"
                )));
            }
            let Some(name) = user_of(&site) else {
                return Err(CliError::Input(format!(
                    "site {site} would have the store's own user of that name, which everybody is who doesn't say otherwise; call the site something else"
                )));
            };
            let its = channels.values().filter(|channel| channel.has(&site));
            users.push(User {
                name: name.to_owned(),
                rules: site_rules(&store.keys, &site, its.map(Channel::id)),
                site: Some(site),
            });
        }
        if everybody || self.daemon {
            let name = SiteId::parse(&self.daemon_user)
                .ok()
                .filter(|name| user_of(name).is_some());
            let Some(name) =
                name.filter(|name| users.iter().all(|user| user.name != name.as_str()))
            else {
                return Err(CliError::Input(format!(
                    "--daemon-user {:?} is no name for a user, the store's own, or a site's",
                    self.daemon_user
                )));
            };
            users.push(User {
                name: name.to_string(),
                site: None,
                rules: daemon_rules(&store.keys, store.config.relay.manage_access),
            });
        }
        Ok(users)
    }
}

/// The open channels.
async fn channels(store: &mut Store) -> Result<BTreeMap<String, Channel>, CliError> {
    let index = store
        .run(redis::cmd("SMEMBERS").arg(&*store.keys.direct_index()))
        .await?;
    let ids: Vec<String> = match index {
        Answered::Array(members) | Answered::Set(members) => members
            .into_iter()
            .filter_map(|member| redis::from_redis_value(member).ok())
            .collect(),
        _ => Vec::new(),
    };
    let mut channels = BTreeMap::new();
    for id in ids {
        let stored = store.hash(&store.keys.direct_meta(&id).clone()).await?;
        let stored: HashMap<String, String> = stored.into_iter().collect();
        // One without metadata is just being closed; one that can't be read gives nobody access.
        if let Ok(channel) = Channel::read(&id, &stored) {
            channels.insert(id, channel);
        }
    }
    Ok(channels)
}
