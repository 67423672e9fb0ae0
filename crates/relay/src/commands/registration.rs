//! Which sites there are: registering, deregistering, listing.

use crossway_core::address::{Environment, SiteId};
use crossway_core::code::{Code, Refusal};
use crossway_core::entry::EntryId;
use crossway_core::message::{Kind, Message};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Caller, Command, Commands, bad, forbidden, parse};
use crate::directory::DirectoryError;
use crate::manifest::Registration;

#[derive(Deserialize)]
struct SiteParams {
    #[serde(default)]
    id: Option<String>,
}

impl Commands<'_> {
    pub(super) async fn register(
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
            .replace_site(&registration, caller.entry.ms)
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
            .is_some_and(|(_, owner, _)| *owner != registration.site)
        {
            return Err(taken(&registration.site).into());
        }
        for id in registration.entities.keys() {
            let as_site = registry
                .site(id.as_str())
                .is_some_and(|(site, _)| *site != registration.site);
            let as_entity = registry
                .entity(id.as_str())
                .is_some_and(|(_, owner, _)| *owner != registration.site);
            if as_site || as_entity {
                return Err(taken(id).into());
            }
        }
        Ok(())
    }

    pub(super) async fn deregister(
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

    pub(super) fn list(&self) -> Value {
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
}

fn registered(registration: &Registration) -> Value {
    let environments: Vec<&str> = registration
        .environments
        .iter()
        .map(Environment::as_str)
        .collect();
    json!({"id": registration.site.as_str(), "environments": environments, "registered": true})
}
