//! One crossing, decided.
//!
//! [`Crossing::cross`] reads like the sentence: an entry that has arrived is decoded, its target
//! resolved, admitted, translated, delivered, and its sender answered. It does no I/O; what it
//! decides is a [`Step`], which the reader carries out.

use bytes::Bytes;
use crossway_core::address::{
    Environment, SiteId, SiteStream, StreamKeyError, Target, TargetError,
};
use crossway_core::code::{Code, Refusal};
use crossway_core::entry::{Entry, EntryId, Fields};
use crossway_core::format::Formats;
use crossway_core::guard::{self, Candidate, Objection};
use crossway_core::message::{Kind, Label, Message};
use crossway_core::policy::Policy;
use crossway_core::trace::TraceParent;
use crossway_transport::streams::{Append, Settlement};

use crate::answers::{Addressee, Relayed, echo};
use crate::batch;
use crate::commands;
use crate::counters::{NO_GUARD, Outcome};
use crate::ids::DeliveryIds;
use crate::limiter::{Limiter, Passing};
use crate::options::RelayOptions;
use crate::registry::Registry;
use crate::reply::{Answer, Record};
use crate::telemetry::Passage;
use crate::translation::Translation;

/// What is to be done about an entry.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Nearly every step is the large one, and none is kept.
pub(crate) enum Step {
    /// Settle it.
    Settle(Decided),
    /// Run a command of the daemon's own, and answer.
    Run,
    /// Ask the store for a name, then decide again.
    LookUp(SiteId),
    /// Take in a stream that is addressed by its key, so that its answers are read, then decide again.
    Adopt(SiteStream),
}

/// A settlement, and what it is counted and logged as.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) settlement: Settlement,
    pub(crate) outcome: Outcome,
    /// Why it was refused, if it was.
    pub(crate) objection: Option<Objection>,
    /// It claimed another source than its stream.
    pub(crate) forged: bool,
    /// Between whom it passed or was refused, where it is a relay.
    pub(crate) passage: Option<Passage>,
    /// Whether what it carries was translated, or why not.
    pub(crate) translation: Translated,
}

/// What is counted and logged of a translation.
#[derive(Debug, Default)]
pub(crate) enum Translated {
    /// None was needed.
    #[default]
    No,
    /// It was.
    Yes,
    /// It should have been; it went on as it came, for this reason.
    Failed(String),
}

/// What has been tried for an entry that could not be decided at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tried {
    /// Nothing yet.
    Nothing,
    /// The store was asked for the name, or the stream was taken in.
    Asked,
    /// That was refused.
    Refused(Refusal),
}

/// Where a target was found.
struct Place<'r> {
    site: SiteId,
    entity: String,
    /// The format that it wants to be spoken to in.
    native: Option<&'r str>,
    /// Its stream; `None` where the site has no part in the sender's environment.
    stream: Option<SiteStream>,
}

/// What looking for a target gave.
enum Found<'r> {
    Place(Place<'r>),
    /// The name isn't known here; the store may know it.
    Unknown(SiteId),
    Refused(Refusal),
}

/// An entry on its way, with its source told truly.
struct Arrival<'a> {
    source: &'a SiteStream,
    entry: EntryId,
    message: &'a Message<'a>,
    target: &'a str,
}

/// All that a crossing is decided by.
pub(crate) struct Crossing<'a> {
    pub(crate) options: &'a RelayOptions,
    pub(crate) registry: &'a Registry,
    pub(crate) policy: &'a Policy,
    pub(crate) limiter: &'a Limiter,
    pub(crate) formats: &'a Formats,
    pub(crate) now_ms: u64,
    /// The span of this crossing, where it is recorded; it goes on with what is handed over.
    pub(crate) trace: Option<TraceParent>,
}

impl<'a> Crossing<'a> {
    /// Decides what is to be done about `entry`, read from `source`. `record` is the relay that
    /// it answers, where there is one.
    pub(crate) fn cross(
        &self,
        source: &SiteStream,
        entry: &Entry,
        record: Option<&Record>,
        tried: &Tried,
        ids: &mut DeliveryIds,
    ) -> Step {
        let message = Message::read(&entry.fields);
        match (message.kind(), message.target()) {
            (Some(kind), _) if kind.is_answer() => {
                self.bring_home(source, entry.id, &message, record)
            }
            (_, Some(target)) => {
                let arrival = Arrival {
                    source,
                    entry: entry.id,
                    message: &message,
                    target: &target,
                };
                self.relay(&arrival, tried, ids)
            }
            (Some(kind), None) if commands::is_own(kind, &message) => Step::Run,
            (Some(_), None) => acknowledge(source, entry.id, Outcome::Passed),
            (None, None) => acknowledge(source, entry.id, Outcome::Meaningless),
        }
    }

    /// The site, and the entity of it or nothing, with which a command of `source`'s to the daemon
    /// has to do: found and admitted as a message to it would be. `None` where the store has to be
    /// asked for the name.
    pub(crate) fn counterpart(
        &self,
        source: &SiteStream,
        target: &str,
        command: &str,
    ) -> Option<Result<(SiteId, String), Refusal>> {
        let nothing = Fields::default();
        let arrival = Arrival {
            source,
            entry: EntryId::ZERO,
            message: &Message::read(&nothing),
            target,
        };
        let place = match self.resolve(&arrival) {
            Found::Place(place) => Ok(place),
            Found::Refused(refusal) => Err(refusal),
            Found::Unknown(_) => return None,
        };
        let reached = place.as_ref().ok().and_then(|place| place.stream.as_ref());
        let candidate = Candidate {
            flaw: None,
            source: &source.site,
            target: place.as_ref().map(|place| &place.site),
            environment: &source.environment,
            target_environment: reached.map(|stream| &stream.environment),
            commands: &[command],
            exceeded: None,
        };
        if let Err(objection) = guard::admit(&candidate, self.policy) {
            return Some(Err(objection.refusal));
        }
        Some(place.map(|place| (place.site, place.entity)))
    }

    fn relay(&self, arrival: &Arrival<'_>, tried: &Tried, ids: &mut DeliveryIds) -> Step {
        let found = match tried {
            Tried::Refused(refusal) => Found::Refused(refusal.clone()),
            Tried::Nothing | Tried::Asked => self.resolve(arrival),
        };
        let place = match found {
            Found::Place(place) => Ok(place),
            Found::Refused(refusal) => Err(refusal),
            Found::Unknown(name)
                if *tried == Tried::Nothing && arrival.message.flaw().is_none() =>
            {
                return Step::LookUp(name);
            }
            Found::Unknown(name) => {
                let reason = format!("no site and no entity is called {}", echo(name.as_str()));
                Err(Refusal::new(Code::TargetNotFound, reason))
            }
        };
        let resolved = place.as_ref().ok().map(|place| place.site.clone());
        let (place, stream, commands) = match self.admit(arrival, place) {
            Ok(admitted) => admitted,
            Err(objection) => return self.refuse(arrival, resolved.as_ref(), objection),
        };
        if !self.registry.reads(&stream) && *tried == Tried::Nothing {
            return Step::Adopt(stream);
        }
        let translation = Translation::of_parameters(
            self.formats,
            place
                .native
                .filter(|_| arrival.message.kind() != Some(Kind::BatchCommand)),
            arrival.message.params(),
        );
        let delivered = self.deliver(arrival, &place.entity, &stream, translation, ids);
        if matches!(&delivered, Step::Settle(decided) if decided.outcome == Outcome::Relayed) {
            let message = arrival.passing(&stream.site, commands);
            self.limiter.take(&self.options.rates, &message);
        }
        delivered
    }

    fn resolve(&self, arrival: &Arrival<'_>) -> Found<'a> {
        let refused = |code, reason: String| {
            Found::Refused(Refusal::new(
                code,
                format!("target {}: {reason}", echo(arrival.target)),
            ))
        };
        match Target::parse(arrival.target, &self.options.keyspace) {
            Ok(Target::Stream(stream)) if stream.site == *self.options.keyspace.namespace() => {
                refused(Code::TargetNotFound, "that is the daemon itself".to_owned())
            }
            Ok(Target::Stream(stream)) => {
                // A site that is registered says itself where it lives.
                let registered = self.registry.site(stream.site.as_str());
                let lives_there =
                    registered.is_none_or(|(_, site)| site.stream(&stream.environment).is_some());
                Found::Place(Place {
                    site: stream.site.clone(),
                    entity: String::new(),
                    native: registered.and_then(|(_, site)| site.native_format()),
                    stream: lives_there.then_some(stream),
                })
            }
            Ok(Target::Name(name)) => self.find(name, &arrival.source.environment),
            Ok(Target::Foreign(_)) => refused(
                Code::TargetNotFound,
                "the plane of this address isn't on".to_owned(),
            ),
            Err(TargetError::Stream(reason @ StreamKeyError::Environment { .. })) => {
                refused(Code::Environment, reason.to_string())
            }
            Err(reason) => refused(Code::TargetNotFound, reason.to_string()),
        }
    }

    /// Finds a name: a site's comes before an entity's.
    fn find(&self, name: SiteId, environment: &Environment) -> Found<'a> {
        if let Some((id, site)) = self.registry.site(name.as_str()) {
            return Found::Place(Place {
                site: id.clone(),
                entity: String::new(),
                native: site.native_format(),
                stream: site.stream(environment).cloned(),
            });
        }
        let Some((entity, owner, about)) = self.registry.entity(name.as_str()) else {
            return Found::Unknown(name);
        };
        match self.registry.site(owner.as_str()) {
            Some((id, site)) => Found::Place(Place {
                site: id.clone(),
                entity: entity.to_string(),
                native: about.native_format().or_else(|| site.native_format()),
                stream: site.stream(environment).cloned(),
            }),
            None => Found::Unknown(name),
        }
    }

    /// Asks the guards.
    fn admit(
        &self,
        arrival: &Arrival<'_>,
        place: Result<Place<'a>, Refusal>,
    ) -> Result<(Place<'a>, SiteStream, u32), Objection> {
        let message = arrival.message;
        let batch = match message.kind() {
            Some(Kind::BatchCommand) => batch::parse(message.params().map(|p| &**p)),
            _ => Ok(Vec::new()),
        };
        let flaw = message.flaw().or(batch.as_ref().err());
        let items = batch.as_deref().unwrap_or_default();
        let commands: Vec<&str> = match items {
            [] => vec![message.command()],
            items => {
                let own = Some(message.command()).filter(|name| !name.is_empty());
                items
                    .iter()
                    .map(|item| item.command.as_str())
                    .chain(own)
                    .collect()
            }
        };
        let count = u32::try_from(items.len().max(1)).unwrap_or(u32::MAX);
        let exceeded = place.as_ref().ok().and_then(|place| {
            let message = arrival.passing(&place.site, count);
            self.limiter.check(&self.options.rates, &message)
        });
        let reached = place.as_ref().ok().and_then(|place| place.stream.as_ref());
        let candidate = Candidate {
            flaw,
            source: &arrival.source.site,
            target: place.as_ref().map(|place| &place.site),
            environment: &arrival.source.environment,
            target_environment: reached.map(|stream| &stream.environment),
            commands: &commands,
            exceeded,
        };
        guard::admit(&candidate, self.policy)?;
        match place {
            Ok(Place {
                site,
                entity,
                native,
                stream: Some(stream),
            }) => Ok((
                Place {
                    site,
                    entity,
                    native,
                    stream: None,
                },
                stream,
                count,
            )),
            // The guards object to both; this only keeps the types honest.
            Ok(Place { stream: None, .. }) => Err(objection(Refusal::new(
                Code::Environment,
                "the target isn't in this environment",
            ))),
            Err(refusal) => Err(objection(refusal)),
        }
    }

    /// Hands over: the forwarded entry, the record of it, the acknowledgement, in one step.
    fn deliver(
        &self,
        arrival: &Arrival<'_>,
        entity: &str,
        to: &SiteStream,
        translation: Translation,
        ids: &mut DeliveryIds,
    ) -> Step {
        let Ok(delivery) = ids.draw(&arrival.source.key, arrival.entry) else {
            let reason = "the system has no random bytes for a delivery id";
            let objection = objection(Refusal::new(Code::Unavailable, reason));
            return self.refuse(arrival, Some(&to.site), objection);
        };
        let sender = Addressee::of(arrival.message, arrival.entry, arrival.source);
        let label = Label {
            delivery: Bytes::copy_from_slice(delivery.as_bytes()),
            source_site: Bytes::copy_from_slice(arrival.source.site.as_str().as_bytes()),
            dest_site: Bytes::copy_from_slice(to.site.as_str().as_bytes()),
            dest_entity: Bytes::copy_from_slice(entity.as_bytes()),
            reply_to: Bytes::copy_from_slice(arrival.source.key.as_bytes()),
            now_ms: self.now_ms,
            translated: translation.body(),
            trace: self.trace,
        };
        let forwarded = Append {
            stream: to.key.clone(),
            fields: arrival.message.forward(&label),
        };
        let acknowledgement = sender.acknowledgement(
            self.options,
            self.now_ms,
            &Relayed::new(arrival.target, entity, to, label.translated.is_some()),
        );
        let answered = arrival.message.kind().is_some_and(Kind::wants_answer);
        let settlement = Settlement {
            stream: arrival.source.key.clone(),
            entry: arrival.entry,
            consume: None,
            appends: vec![forwarded, acknowledgement],
            puts: if answered {
                vec![Record::put(
                    self.options,
                    &sender,
                    to,
                    &delivery,
                    translation.languages(),
                    self.trace,
                )]
            } else {
                Vec::new()
            },
        };
        Step::Settle(Decided {
            settlement,
            outcome: Outcome::Relayed,
            objection: None,
            forged: arrival.forged(),
            passage: Some(arrival.passage(Some(&to.site))),
            translation: translation.into(),
        })
    }

    fn refuse(
        &self,
        arrival: &Arrival<'_>,
        resolved: Option<&SiteId>,
        objection: Objection,
    ) -> Step {
        let sender = Addressee::of(arrival.message, arrival.entry, arrival.source);
        let settlement = Settlement {
            appends: vec![sender.refusal(self.options, self.now_ms, &objection.refusal)],
            puts: vec![sender.poll_refusal(self.options, self.now_ms, &objection.refusal)],
            ..Settlement::acknowledge(arrival.source.key.clone(), arrival.entry)
        };
        Step::Settle(Decided {
            settlement,
            outcome: Outcome::Refused,
            objection: Some(objection),
            forged: arrival.forged(),
            passage: Some(arrival.passage(resolved)),
            translation: Translated::No,
        })
    }

    fn bring_home(
        &self,
        from: &SiteStream,
        entry: EntryId,
        message: &Message<'_>,
        record: Option<&Record>,
    ) -> Step {
        let Some(delivery) = answered_delivery(message, self.options) else {
            return acknowledge(from, entry, Outcome::Passed);
        };
        let Some(record) = record else {
            return acknowledge(from, entry, Outcome::ReplyUnknown);
        };
        let answer = Answer {
            message,
            entry,
            from,
            delivery,
            record,
            trace: self.trace,
        };
        let translation = answer.translation(self.formats);
        let carried = match message.flaw() {
            None => answer.carry(self.options, translation.body(), self.now_ms),
            Some(flaw) => answer.fail(self.options, self.now_ms, flaw),
        };
        match carried {
            Some(settlement) => Step::Settle(Decided {
                settlement,
                outcome: Outcome::Answered,
                objection: None,
                forged: false,
                passage: None,
                translation: translation.into(),
            }),
            None => acknowledge(from, entry, Outcome::ReplyForeign),
        }
    }
}

impl From<Translation> for Translated {
    fn from(translation: Translation) -> Translated {
        match translation {
            Translation::Unneeded => Translated::No,
            Translation::Done(..) => Translated::Yes,
            Translation::Failed(reason) => Translated::Failed(reason),
        }
    }
}

impl Arrival<'_> {
    fn passing<'p>(&'p self, target: &'p SiteId, commands: u32) -> Passing<'p> {
        Passing {
            stream: &self.source.key,
            entry: self.entry,
            source: &self.source.site,
            target,
            commands,
        }
    }

    /// What it is counted under: the target as it was resolved, else as it was asked for.
    fn passage(&self, resolved: Option<&SiteId>) -> Passage {
        Passage::new(
            &self.source.site,
            resolved.map_or(self.target, SiteId::as_str),
            self.message.command(),
        )
    }

    fn forged(&self) -> bool {
        self.message
            .claimed_site()
            .is_some_and(|claimed| claimed != self.source.site.as_str())
    }
}

/// The delivery id that an answer is to, unless a daemon itself has written the answer.
pub(crate) fn answered_delivery<'a>(
    message: &Message<'a>,
    options: &RelayOptions,
) -> Option<&'a str> {
    let by_daemon = message.was_carried()
        || message.claimed_site() == Some(options.keyspace.namespace().as_str());
    let kind = message.kind().is_some_and(Kind::is_answer);
    message
        .answers()
        .filter(|id| kind && !by_daemon && crate::ids::is_delivery(id))
}

fn objection(refusal: Refusal) -> Objection {
    Objection {
        guard: NO_GUARD,
        refusal,
    }
}

/// Only takes an entry off the pending list.
pub(crate) fn acknowledge(source: &SiteStream, entry: EntryId, outcome: Outcome) -> Step {
    let settlement = Settlement::acknowledge(source.key.clone(), entry);
    Step::Settle(Decided {
        settlement,
        outcome,
        objection: None,
        forged: false,
        passage: None,
        translation: Translated::No,
    })
}
