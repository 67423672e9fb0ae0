//! The commands that the daemon itself answers.
//!
//! A command is the daemon's when its site put it into its own stream without a target. One
//! that was forwarded there from another site isn't: it is for that site, whatever it is called.

mod broadcast;
mod policy;
mod registration;

use crossway_core::address::{Environment, SiteId, SiteStream};
use crossway_core::code::{Code, Refusal};
use crossway_core::entry::EntryId;
use crossway_core::message::{Kind, Message};
use crossway_transport::streams::{Append, Streams};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::batch;
use crate::directory::{Directory, DirectoryError};
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
            _ => return None,
        })
    }

    /// Whether it shows or changes what concerns others, so that only an administrator may give it.
    fn is_restricted(self) -> bool {
        matches!(
            self,
            Command::PolicySet | Command::PolicyList | Command::PolicyRemove
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
pub(crate) struct Caller<'a> {
    pub(crate) stream: &'a SiteStream,
    pub(crate) site: &'a SiteId,
    /// The node that it says it is.
    pub(crate) node: &'a str,
    pub(crate) environment: &'a Environment,
    /// The entry that it stands in: the same however often it is run. Its time is the store's.
    pub(crate) entry: EntryId,
}

/// Runs the daemon's own commands.
pub(crate) struct Commands<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) store: &'a dyn Streams,
    pub(crate) telemetry: &'a Telemetry,
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
            return Ok(self
                .one(caller, message.command(), params, writes)
                .await?
                .to_string());
        }
        let items = batch::parse(message.params().map(|p| &**p))?;
        let mut answers = Vec::with_capacity(items.len());
        for item in items {
            let answer = match self
                .one(caller, &item.command, item.params.as_bytes(), writes)
                .await
            {
                Ok(result) => json!({"ri": item.id, "st": "ok", "r": result}),
                Err(DirectoryError::Refused(refusal)) => {
                    json!({"ri": item.id, "st": "error", "_ec": refusal.code.as_str(), "e": refusal.message})
                }
                Err(error) => return Err(error),
            };
            answers.push(answer);
        }
        Ok(Value::Array(answers).to_string())
    }

    async fn one(
        &self,
        caller: &Caller<'_>,
        name: &str,
        params: &[u8],
        writes: &mut Vec<Append>,
    ) -> Result<Value, DirectoryError> {
        let options = self.directory.options();
        let administrator = options.administrators.contains(caller.site);
        let Some(command) = Command::parse(name) else {
            return Err(Refusal::new(Code::BadParameters, "the daemon has no such command").into());
        };
        if command.is_restricted() && !administrator {
            return Err(forbidden(caller.site).into());
        }
        match command {
            Command::Ping => {
                Ok(json!({"pong": true, "node": &*options.node, "timestamp": caller.entry.ms}))
            }
            Command::Register => self.register(caller, params, administrator).await,
            Command::Deregister => self.deregister(caller, params, administrator).await,
            Command::ListServices => Ok(self.list()),
            Command::PolicySet => self.policy_set(params).await,
            Command::PolicyList => self.policy_list().await,
            Command::PolicyRemove => self.policy_remove(params).await,
            Command::Broadcast => self.broadcast(caller, params, writes).await,
            Command::RelayStats => {
                let key = options.keyspace.telemetry();
                Ok(self.telemetry.report(self.store, &key).await?)
            }
        }
    }
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
