//! The commands that the daemon itself answers.
//!
//! A command is the daemon's when its site put it into its own stream without a target. One
//! that was forwarded there from another site isn't: it is for that site, whatever it is called.

use crossway_core::address::{Environment, SiteId};
use crossway_core::code::{Code, Refusal};
use crossway_core::entry::EntryId;
use crossway_core::message::{Kind, Message};
use crossway_core::policy::{Pair, Rule};
use crossway_transport::streams::Streams;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::batch;
use crate::directory::{Directory, DirectoryError};
use crate::manifest::Registration;

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
        Kind::BatchCommand => batch::parse(message.params().map(|p| &**p)).is_ok_and(|items| {
            items
                .iter()
                .any(|item| Command::parse(&item.command).is_some())
        }),
        Kind::Response | Kind::BatchResponse | Kind::Event => false,
    }
}

/// Who gives a command.
pub(crate) struct Caller<'a> {
    pub(crate) site: &'a SiteId,
    pub(crate) environment: &'a Environment,
    /// When the entry was written, by the store's clock: the same however often it is run.
    pub(crate) at_ms: u64,
}

#[derive(Deserialize)]
struct SiteParams {
    #[serde(default)]
    id: Option<String>,
}

#[derive(Deserialize)]
struct PairParams {
    source: String,
    target: String,
}

#[derive(Deserialize)]
struct PolicyParams<'a> {
    source: String,
    target: String,
    #[serde(borrow)]
    policy: &'a RawValue,
}

/// Runs the daemon's own commands.
pub(crate) struct Commands<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) store: &'a dyn Streams,
}

impl Commands<'_> {
    /// Runs what a message asks for and gives the result as JSON text.
    ///
    /// # Errors
    /// A refusal to tell the sender, or the store's error, after which it may be run again.
    pub(crate) async fn run(
        &self,
        caller: &Caller<'_>,
        message: &Message<'_>,
    ) -> Result<String, DirectoryError> {
        if let Some(flaw) = message.flaw() {
            return Err(flaw.clone().into());
        }
        if message.kind() != Some(Kind::BatchCommand) {
            let params = message.params().map_or(&b"{}"[..], |p| p);
            return Ok(self
                .one(caller, message.command(), params)
                .await?
                .to_string());
        }
        let items = batch::parse(message.params().map(|p| &**p))?;
        let mut answers = Vec::with_capacity(items.len());
        for item in items {
            let answer = match self
                .one(caller, &item.command, item.params.as_bytes())
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
                Ok(json!({"pong": true, "node": &*options.node, "timestamp": caller.at_ms}))
            }
            Command::Register => self.register(caller, params, administrator).await,
            Command::Deregister => self.deregister(caller, params, administrator).await,
            Command::ListServices => Ok(self.list()),
            Command::PolicySet => self.policy_set(params).await,
            Command::PolicyList => self.policy_list().await,
            Command::PolicyRemove => self.policy_remove(params).await,
        }
    }

    async fn register(
        &self,
        caller: &Caller<'_>,
        params: &[u8],
        administrator: bool,
    ) -> Result<Value, DirectoryError> {
        let usual = std::slice::from_ref(caller.environment);
        let registration = self.parse_registration(params, usual)?;
        if registration.site != *caller.site && !administrator {
            return Err(forbidden(caller.site).into());
        }
        self.names_are_free(&registration).await?;
        self.directory
            .replace_site(&registration, caller.at_ms)
            .await?;
        self.directory.add_entities(&registration).await?;
        Ok(registered(&registration))
    }

    /// Registers a site that isn't known yet, from the register stream. Nobody is known there, so
    /// it can only add. The entry's id tells a second run of it from another registration.
    pub(crate) async fn register_new(
        &self,
        message: &Message<'_>,
        entry: EntryId,
    ) -> Result<(Registration, String), DirectoryError> {
        if let Some(flaw) = message.flaw() {
            return Err(flaw.clone().into());
        }
        if message.kind() != Some(Kind::Command)
            || Command::parse(message.command()) != Some(Command::Register)
        {
            return Err(Refusal::new(
                Code::BadParameters,
                "only register_service is taken on this stream",
            )
            .into());
        }
        let registration =
            self.parse_registration(message.params().map_or(&b""[..], |p| p), &[])?;
        self.names_are_free(&registration).await?;
        if !self
            .directory
            .add_site(&registration, entry.ms, Some(entry))
            .await?
            && !self.was_added_by(&registration, entry).await?
        {
            return Err(Refusal::new(
                Code::NameTaken,
                format!("site {} is registered already", registration.site),
            )
            .into());
        }
        self.directory.add_entities(&registration).await?;
        let result = registered(&registration).to_string();
        Ok((registration, result))
    }

    async fn was_added_by(
        &self,
        registration: &Registration,
        entry: EntryId,
    ) -> Result<bool, DirectoryError> {
        self.directory.look_up(registration.site.as_str()).await?;
        let registry = self.directory.registry();
        Ok(registry
            .site(registration.site.as_str())
            .is_some_and(|(_, site)| {
                site.stored().registered_by.as_deref() == Some(&*entry.to_string())
            }))
    }

    fn parse_registration(
        &self,
        params: &[u8],
        usual: &[Environment],
    ) -> Result<Registration, Refusal> {
        let text = std::str::from_utf8(params).map_err(|error| bad(&error))?;
        Registration::parse(text, &self.directory.options().keyspace, usual)
            .map_err(|error| bad(&error))
    }

    /// A site may not take the name of another's entity, which would draw that one's messages.
    async fn names_are_free(&self, registration: &Registration) -> Result<(), DirectoryError> {
        self.directory.look_up(registration.site.as_str()).await?;
        for id in registration.entities.keys() {
            self.directory.look_up(id.as_str()).await?;
        }
        let registry = self.directory.registry();
        let taken = |what: &dyn std::fmt::Display| {
            Refusal::new(Code::NameTaken, format!("{what} is another's name"))
        };
        if registry
            .entity(registration.site.as_str())
            .is_some_and(|(_, owner)| *owner != registration.site)
        {
            return Err(taken(&registration.site).into());
        }
        for id in registration.entities.keys() {
            let as_site = registry
                .site(id.as_str())
                .is_some_and(|(site, _)| *site != registration.site);
            let as_entity = registry
                .entity(id.as_str())
                .is_some_and(|(_, owner)| *owner != registration.site);
            if as_site || as_entity {
                return Err(taken(id).into());
            }
        }
        Ok(())
    }

    async fn deregister(
        &self,
        caller: &Caller<'_>,
        params: &[u8],
        administrator: bool,
    ) -> Result<Value, DirectoryError> {
        let params: SiteParams = parse(params)?;
        let id = params.id.unwrap_or_else(|| caller.site.to_string());
        let site = SiteId::parse(&id).map_err(|error| bad(&error))?;
        if site != *caller.site && !administrator {
            return Err(forbidden(caller.site).into());
        }
        if self.directory.remove_site(site.as_str()).await? {
            Ok(json!({"id": site.as_str(), "deregistered": true}))
        } else {
            Err(Refusal::new(Code::SiteUnknown, format!("site {site} isn't registered")).into())
        }
    }

    fn list(&self) -> Value {
        let registry = self.directory.registry();
        let mut services: Vec<(&SiteId, Value)> = registry
            .sites()
            .map(|(id, site)| {
                let stored = site.stored();
                let entities: Vec<&str> =
                    registry.entities().filter(|(_, owner, _)| *owner == id).map(|(entity, ..)| entity.as_str()).collect();
                (id, json!({"id": id.as_str(), "environments": stored.environments, "entities": entities, "metadata": stored.metadata}))
            })
            .collect();
        services.sort_by_key(|(id, _)| *id);
        json!({"services": services.into_iter().map(|(_, service)| service).collect::<Vec<_>>()})
    }

    async fn policy_set(&self, params: &[u8]) -> Result<Value, DirectoryError> {
        let params: PolicyParams<'_> = parse(params)?;
        let pair = Pair::new(&params.source, &params.target)
            .map_err(|error| bad(&error))?
            .to_string();
        let rule = Rule::parse(&pair, params.policy.get()).map_err(|error| bad(&error))?;
        let key = self.directory.options().keyspace.policy();
        self.store
            .hash_set(&key, &pair, &crate::directory::to_json(&rule))
            .await?;
        // The answer says that the rule holds, so it must hold by then.
        self.directory.refresh().await?;
        Ok(json!({"rule": pair, "policy": rule}))
    }

    async fn policy_list(&self) -> Result<Value, DirectoryError> {
        let rules = self
            .store
            .hash_all(&self.directory.options().keyspace.policy())
            .await?;
        let mut rules: Vec<(String, String)> = rules.into_iter().collect();
        rules.sort();
        let shown = |(pair, body): (String, String)| {
            let policy = serde_json::from_str::<Value>(&body).unwrap_or(Value::String(body));
            json!({"rule": pair, "policy": policy})
        };
        Ok(json!({"policies": rules.into_iter().map(shown).collect::<Vec<_>>()}))
    }

    async fn policy_remove(&self, params: &[u8]) -> Result<Value, DirectoryError> {
        let params: PairParams = parse(params)?;
        let key = self.directory.options().keyspace.policy();
        // As it was written by hand, perhaps in the other spelling, and as the daemon writes it.
        let given = format!("{}:{}", params.source, params.target);
        let pair = Pair::new(&params.source, &params.target)
            .map_err(|error| bad(&error))?
            .to_string();
        let removed = self.store.hash_remove(&key, &given).await?
            | self.store.hash_remove(&key, &pair).await?;
        self.directory.refresh().await?;
        Ok(json!({"rule": pair, "removed": removed}))
    }
}

fn registered(registration: &Registration) -> Value {
    let environments: Vec<&str> = registration
        .environments
        .iter()
        .map(Environment::as_str)
        .collect();
    json!({"id": registration.site.as_str(), "environments": environments, "registered": true})
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
