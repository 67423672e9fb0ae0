//! The commands that the daemon itself answers.
//!
//! A command is the daemon's when its site put it into its own stream without a target. One
//! that was forwarded there from another site isn't: it is for that site, whatever it is called.

mod broadcast;
mod channels;
mod formats;
mod policy;
mod registration;

use crossway_core::address::{Environment, SiteId, SiteStream};
use crossway_core::code::{Code, Refusal};
use crossway_core::entry::EntryId;
use crossway_core::message::{Kind, Message};
use crossway_transport::streams::{Append, Streams};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::batch;
use crate::channels::Channels;
use crate::directory::{Directory, DirectoryError, to_json};
use crate::limiter::Limiter;
use crate::telemetry::Telemetry;

/// A command of the daemon's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Ping,
    Register,
    Deregister,
    ListServices,
    PolicySet,
    PolicyList,
    PolicyRemove,
    RelayStats,
    Broadcast,
    FormatRegister,
    FormatList,
    FormatDetect,
    FormatConvert,
    ChannelOpen,
    ChannelClose,
    ChannelInfo,
    ChannelList,
}

impl Command {
    fn parse(name: &str) -> Option<Command> {
        Some(match name {
            "ping" => Command::Ping,
            "register_service" => Command::Register,
            "deregister_service" => Command::Deregister,
            "list_services" => Command::ListServices,
            "relay_policy_set" => Command::PolicySet,
            "relay_policy_list" => Command::PolicyList,
            "relay_policy_remove" => Command::PolicyRemove,
            "topology_heatmap" | "relay_stats" => Command::RelayStats,
            "broadcast" => Command::Broadcast,
            "register_format" => Command::FormatRegister,
            "list_formats" => Command::FormatList,
            "detect_format" => Command::FormatDetect,
            "convert_format" => Command::FormatConvert,
            "channel_open" => Command::ChannelOpen,
            "channel_close" => Command::ChannelClose,
            "channel_info" => Command::ChannelInfo,
            "channel_list" => Command::ChannelList,
            _ => return None,
        })
    }

    /// Whether it shows or changes what concerns others, so that only an administrator may give it.
    fn is_restricted(self) -> bool {
        matches!(
            self,
            Command::PolicySet
                | Command::PolicyList
                | Command::PolicyRemove
                | Command::FormatRegister
        )
    }
}

/// Whether a message without a target is for the daemon.
pub(crate) fn is_own(kind: Kind, message: &Message<'_>) -> bool {
    if message.was_forwarded() {
        return false;
    }
    match kind {
        Kind::Command => Command::parse(message.command()).is_some(),
        // A faulty batch too, as far as it can be read: its site waits for an answer. One in which
        // nothing can be read is the site's own, in whatever format that likes.
        Kind::BatchCommand => batch::names(message.params().map(|p| &**p))
            .iter()
            .any(|name| Command::parse(name).is_some()),
        Kind::Response | Kind::BatchResponse | Kind::Event => false,
    }
}

/// Who gives a command.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) stream: &'a SiteStream,
    pub(crate) site: &'a SiteId,
    /// The node that it says it is.
    pub(crate) node: &'a str,
    pub(crate) environment: &'a Environment,
    /// The entry that it stands in: the same however often it is run. Its time is the store's.
    pub(crate) entry: EntryId,
    /// Which of the entry's commands it is, from 0.
    pub(crate) item: usize,
}

/// Runs the daemon's own commands.
pub(crate) struct Commands<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) store: &'a dyn Streams,
    pub(crate) telemetry: &'a Telemetry,
    pub(crate) channels: &'a Channels,
    pub(crate) limiter: &'a Limiter,
}

impl Commands<'_> {
    /// Runs what a message asks for and gives the result as JSON text. What is to be
    /// written together with the answer is added to `writes`.
    ///
    /// # Errors
    /// A refusal to tell the sender, or the store's error, after which it may be run again.
    pub(crate) async fn run(
        &self,
        caller: &Caller<'_>,
        message: &Message<'_>,
        writes: &mut Vec<Append>,
    ) -> Result<String, DirectoryError> {
        if let Some(flaw) = message.flaw() {
            return Err(flaw.clone().into());
        }
        if message.kind() != Some(Kind::BatchCommand) {
            let params = message.params().map_or(&b"{}"[..], |p| p);
            let result = self.one(caller, message.command(), params, writes).await?;
            return Ok(String::from(Box::<str>::from(result)));
        }
        let items = batch::parse(message.params().map(|p| &**p))?;
        let mut answers = Vec::with_capacity(items.len());
        for (number, item) in items.into_iter().enumerate() {
            let caller = Caller {
                item: number,
                ..*caller
            };
            let answered = self
                .one(&caller, &item.command, item.params.as_bytes(), writes)
                .await;
            answers.push(match answered {
                Ok(result) => Answered::ok(item.id, result),
                Err(DirectoryError::Refused(refusal)) => Answered::error(item.id, &refusal),
                Err(error) => return Err(error),
            });
        }
        Ok(to_json(&answers))
    }

    async fn one(
        &self,
        caller: &Caller<'_>,
        name: &str,
        params: &[u8],
        writes: &mut Vec<Append>,
    ) -> Result<Box<RawValue>, DirectoryError> {
        let options = self.directory.options();
        let administrator = options.administrators.contains(caller.site);
        let Some(command) = Command::parse(name) else {
            return Err(Refusal::new(Code::BadParameters, "the daemon has no such command").into());
        };
        if command.is_restricted() && !administrator {
            return Err(forbidden(caller.site).into());
        }
        let result = match command {
            Command::Ping => {
                json!({"pong": true, "node": &*options.node, "timestamp": caller.entry.ms})
            }
            Command::Register => self.register(caller, params, administrator).await?,
            Command::Deregister => self.deregister(caller, params, administrator).await?,
            Command::ListServices => self.list(),
            Command::PolicySet => self.policy_set(params).await?,
            Command::PolicyList => self.policy_list().await?,
            Command::PolicyRemove => self.policy_remove(params).await?,
            Command::Broadcast => self.broadcast(caller, params, writes).await?,
            Command::ChannelOpen => self.channel_open(caller, params).await?,
            Command::ChannelClose => self.channel_close(caller, params, administrator).await?,
            Command::ChannelInfo => self.channel_info(caller, params, administrator).await?,
            Command::ChannelList => self.channel_list(caller, params, administrator).await?,
            Command::RelayStats => {
                let key = options.keyspace.telemetry();
                self.telemetry.report(self.store, &key).await?
            }
            Command::FormatRegister => self.format_register(params).await?,
            Command::FormatList => self.format_list(),
            Command::FormatDetect => self.format_detect(params)?,
            Command::FormatConvert => return self.format_convert(params),
        };
        Ok(raw(&result))
    }
}

/// The answer to one command of a batch.
#[derive(Serialize)]
struct Answered {
    ri: Option<String>,
    st: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    r: Option<Box<RawValue>>,
    #[serde(rename = "_ec", skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<String>,
}

impl Answered {
    fn ok(ri: Option<String>, result: Box<RawValue>) -> Answered {
        Answered {
            ri,
            st: "ok",
            r: Some(result),
            code: None,
            e: None,
        }
    }

    fn error(ri: Option<String>, refusal: &Refusal) -> Answered {
        Answered {
            ri,
            st: "error",
            r: None,
            code: Some(refusal.code.as_str()),
            e: Some(refusal.message.to_string()),
        }
    }
}

/// A value as the JSON text that it is answered with.
fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_default()
}

fn parse<'a, T: Deserialize<'a>>(params: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(params).map_err(|error| bad(&error))
}

fn bad(reason: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        Code::BadParameters,
        format!("the parameters can't be read: {reason}"),
    )
}

fn forbidden(site: &SiteId) -> Refusal {
    Refusal::new(Code::Forbidden, format!("{site} is no administrator"))
}
