//! `crossway sites [list|add|remove]`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use crossway_core::address::SiteId;
use crossway_relay::StoredSite;
use serde_json::{Map, Value, json};

use super::output::Output;
use super::store::Store;
use super::{Answer, CliError, Common, argument, known_environment};

/// What to do with the sites.
#[derive(Debug, Args)]
pub(super) struct Sites {
    #[command(subcommand)]
    command: Option<SitesCommand>,
}

#[derive(Debug, Subcommand)]
enum SitesCommand {
    /// Show all registered sites.
    List,
    /// Register a site.
    Add(Add),
    /// Take a site off the register. Its streams stay.
    Remove {
        /// The site.
        site: String,
    },
}

/// A site to be registered.
#[derive(Debug, Args)]
struct Add {
    /// The site.
    site: String,
    /// An environment that it is in; may be given several times.
    #[arg(long, default_value = "production")]
    env: Vec<String>,
    /// What is known of it, as a JSON object, or `@FILE`, or `-`.
    #[arg(long, default_value = "{}", value_name = "JSON")]
    metadata: String,
}

impl Sites {
    pub(super) async fn run(self, common: &Common, output: Output) -> Result<Answer, CliError> {
        match self.command.unwrap_or(SitesCommand::List) {
            SitesCommand::List => list(common, output).await,
            SitesCommand::Add(add) => add.run(common, output).await,
            SitesCommand::Remove { site } => remove(&site, common, output).await,
        }
    }
}

async fn list(common: &Common, output: Output) -> Result<Answer, CliError> {
    let mut store = Store::open(common, Duration::ZERO).await?;
    let stored = store.hash(&store.keys.sites().clone()).await?;
    let mut sites = Map::new();
    let mut text = String::new();
    for (site, body) in stored {
        let known: Value = serde_json::from_str(&body)
            .unwrap_or_else(|_| json!({"fault": "its record isn't JSON"}));
        let environments = known.get("environments").and_then(Value::as_array);
        let environments: Vec<&str> = environments
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        text.push_str(&format!("{site}  {}\n", environments.join(",")));
        sites.insert(site, known);
    }
    if text.is_empty() {
        text.push_str("no site is registered");
    }
    output.answer(&json!({"sites": Value::Object(sites)}), text)?;
    Ok(Answer::Yes)
}

impl Add {
    async fn run(self, common: &Common, output: Output) -> Result<Answer, CliError> {
        let site = site(&self.site)?;
        let metadata = argument::text("--metadata", &self.metadata)?;
        let metadata: Map<String, Value> = serde_json::from_str(&metadata)
            .map_err(|error| CliError::Input(format!("--metadata isn't a JSON object: {error}")))?;
        let mut store = Store::open(common, Duration::ZERO).await?;
        if site == *store.keys.namespace() {
            return Err(CliError::Input(format!("{site} is the daemon itself")));
        }
        for name in &self.env {
            known_environment(&store.keys, name)?;
        }
        let key = store.keys.sites().clone();
        let added = !store.hash_has(&key, site.as_str()).await?;
        if added {
            let record = json!(StoredSite {
                environments: self.env.clone(),
                metadata,
                registered_at: now_ms(),
                registered_by: None,
            });
            store
                .hash_set(&key, site.as_str(), &record.to_string())
                .await?;
        }
        let text = if added {
            format!("{site} is registered")
        } else {
            format!("{site} was registered before; nothing changed")
        };
        output.answer(&json!({"site": site.as_str(), "added": added}), text)?;
        Ok(if added { Answer::Yes } else { Answer::No })
    }
}

async fn remove(name: &str, common: &Common, output: Output) -> Result<Answer, CliError> {
    let site = site(name)?;
    let mut store = Store::open(common, Duration::ZERO).await?;
    let removed = store
        .hash_remove(&store.keys.sites().clone(), &[site.to_string()])
        .await?;
    let text = if removed {
        format!("{site} is removed")
    } else {
        format!("{site} isn't registered")
    };
    output.answer(&json!({"site": site.as_str(), "removed": removed}), text)?;
    Ok(if removed { Answer::Yes } else { Answer::No })
}

fn site(name: &str) -> Result<SiteId, CliError> {
    SiteId::parse_spelled(name).map_err(|error| CliError::Input(format!("site {name:?}: {error}")))
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
