//! Direct channels: opening, closing, and seeing one's own.

use std::sync::Arc;
use std::time::Duration;

use crossway_core::address::SiteId;
use crossway_core::code::{Code, Refusal};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Caller, Commands, bad, parse};
use crate::channels::{Channel, MAX_TTL, Mode};
use crate::crossing::Crossing;
use crate::directory::DirectoryError;
use crate::ids;

/// Time without use after which a temporary channel goes, unless its opener says otherwise.
const USUAL_TTL: u64 = 3600;

/// Bytes of metadata that a channel may have: all channels are held in memory.
const MAX_METADATA: usize = 4096;

#[derive(Deserialize)]
struct OpenParams {
    target_site: String,
    #[serde(default)]
    mode: ModeWord,
    #[serde(default)]
    ttl_seconds: Option<u64>,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum ModeWord {
    /// What nobody asked to go stays.
    #[default]
    Persistent,
    Temporary,
}

#[derive(Deserialize)]
struct ChannelParams {
    channel_id: String,
}

#[derive(Deserialize)]
struct ListParams {
    #[serde(default)]
    site_filter: Option<String>,
    #[serde(default)]
    env_filter: Option<String>,
}

impl Commands<'_> {
    /// May be run twice for one entry: the channel's id comes from the entry, so that there is one.
    pub(super) async fn channel_open(
        &self,
        caller: &Caller<'_>,
        params: &[u8],
    ) -> Result<Value, DirectoryError> {
        let params: OpenParams = parse(params)?;
        let ttl = params.ttl_seconds.unwrap_or(USUAL_TTL);
        if ttl == 0 || ttl > MAX_TTL {
            return Err(bad(&format!("ttl_seconds is 1 to {MAX_TTL}")).into());
        }
        let mode = match params.mode {
            ModeWord::Persistent => Mode::Persistent,
            ModeWord::Temporary => Mode::Temporary(Duration::from_secs(ttl)),
        };
        let metadata = params.metadata.unwrap_or_default();
        if crate::directory::to_json(&metadata).len() > MAX_METADATA {
            return Err(bad(&format!("metadata has at most {MAX_METADATA} bytes")).into());
        }
        let options = self.directory.options();
        let secret = ids::shared_secret(self.store, &options.keyspace.members()).await?;
        let id = ids::channel(&secret, &caller.stream.key, caller.entry, caller.item);
        if let Some(begun) = self
            .channels
            .find(self.store, &options.keyspace, &id)
            .await?
        {
            self.channels.open(self.store, &options, &begun).await?;
            return Ok(begun.shown(&options.keyspace));
        }
        let (target, entity) = self.counterpart(caller, &params.target_site).await?;
        if target == *caller.site {
            return Err(
                bad(&"a channel is between two sites, and the target is the sender").into(),
            );
        }
        let channel = Channel {
            id,
            source: caller.site.clone(),
            target,
            entity,
            environment: caller.environment.to_string(),
            mode,
            opened_at: caller.entry.ms,
            metadata,
        };
        self.channels.open(self.store, &options, &channel).await?;
        tracing::info!(channel = channel.id, source = %channel.source, target = %channel.target, "a channel was opened");
        Ok(channel.shown(&options.keyspace))
    }

    /// Finds the other party, and asks the policy.
    async fn counterpart(
        &self,
        caller: &Caller<'_>,
        target: &str,
    ) -> Result<(SiteId, String), DirectoryError> {
        let look = || {
            let (options, policy) = (self.directory.options(), self.directory.policy());
            let formats = self.directory.formats();
            let registry = self.directory.registry();
            let crossing = Crossing {
                options: &options,
                registry: &registry,
                policy: &policy,
                limiter: self.limiter,
                formats: &formats,
                now_ms: caller.entry.ms,
                trace: None,
            };
            crossing.counterpart(caller.stream, target, "channel_open")
        };
        if let Some(found) = look() {
            return Ok(found?);
        }
        if let Ok(name) = SiteId::parse_spelled(target) {
            self.directory.look_up(name.as_str()).await?;
        }
        let unknown = || Refusal::new(Code::TargetNotFound, "no site and no entity is called that");
        Ok(look().unwrap_or_else(|| Err(unknown()))?)
    }

    pub(super) async fn channel_close(
        &self,
        caller: &Caller<'_>,
        params: &[u8],
        administrator: bool,
    ) -> Result<Value, DirectoryError> {
        let channel = self.own_channel(caller, params, administrator).await?;
        let options = self.directory.options();
        self.channels.close(self.store, &options, &channel).await?;
        tracing::info!(channel = channel.id(), by = %caller.site, "a channel was closed");
        Ok(json!({"channel_id": channel.id(), "closed": true}))
    }

    pub(super) async fn channel_info(
        &self,
        caller: &Caller<'_>,
        params: &[u8],
        administrator: bool,
    ) -> Result<Value, DirectoryError> {
        let channel = self.own_channel(caller, params, administrator).await?;
        Ok(channel.shown(&self.directory.options().keyspace))
    }

    /// The channel that the parameters name, if the caller has to do with it.
    async fn own_channel(
        &self,
        caller: &Caller<'_>,
        params: &[u8],
        administrator: bool,
    ) -> Result<Arc<Channel>, DirectoryError> {
        let params: ChannelParams = parse(params)?;
        let id = &params.channel_id;
        if !ids::is_channel(id) {
            return Err(bad(&"channel_id is dc_ and 32 digits, as channel_open gave it").into());
        }
        let keyspace = &self.directory.options().keyspace;
        match self.channels.find(self.store, keyspace, id).await? {
            Some(channel) if administrator || channel.has(caller.site) => Ok(channel),
            Some(_) => {
                let reason = format!(
                    "{} is no party of this channel, and no administrator",
                    caller.site
                );
                Err(Refusal::new(Code::Forbidden, reason).into())
            }
            None => Err(Refusal::new(Code::ChannelUnknown, "there is no such channel").into()),
        }
    }

    /// A site sees the channels that it is a party of, an administrator all of them.
    pub(super) async fn channel_list(
        &self,
        caller: &Caller<'_>,
        params: &[u8],
        administrator: bool,
    ) -> Result<Value, DirectoryError> {
        let params: ListParams = parse(params)?;
        let options = self.directory.options();
        let keyspace = &options.keyspace;
        let site = match &params.site_filter {
            Some(name) => Some(SiteId::parse_spelled(name).map_err(|error| bad(&error))?),
            None => None,
        };
        let environment = match &params.env_filter {
            Some(name) => Some(
                keyspace
                    .environment(name)
                    .ok_or_else(|| bad(&"env_filter isn't an environment that is known here"))?,
            ),
            None => None,
        };
        let all = self.channels.all(self.store, keyspace).await?;
        let shown: Vec<Value> = all
            .iter()
            .filter(|channel| administrator || channel.has(caller.site))
            .filter(|channel| site.as_ref().is_none_or(|site| channel.has(site)))
            .filter(|channel| environment.is_none_or(|environment| channel.is_in(environment)))
            .map(|channel| channel.shown(keyspace))
            .collect();
        Ok(json!({"count": shown.len(), "channels": shown}))
    }
}
