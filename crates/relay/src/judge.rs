//! What becomes of an entry, with the look-ups that it takes.
//!
//! The decision itself is [`crate::crossing`]'s; here the store and the directory are asked for
//! what it needs: the relay that an answer belongs to, a name that isn't known, a daemon command's work.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crossway_core::address::SiteStream;
use crossway_core::code::{Code, Refusal};
use crossway_core::entry::{Entry, EntryId, Fields};
use crossway_core::guard::Objection;
use crossway_core::message::{Kind, Message};
use crossway_core::trace::TraceParent;
use crossway_transport::streams::{Key, Read, ReadEntry, Settlement, StoreError};

use crate::answers::Addressee;
use crate::commands::{Caller, Commands};
use crate::counters::{NO_GUARD, Outcome};
use crate::crossing::{Crossing, Decided, Step, Translated, Tried, answered_delivery};
use crate::dead::Dead;
use crate::directory::DirectoryError;
use crate::ids::{self, DeliveryIds};
use crate::reader::Source;
use crate::relay::Shared;
use crate::reply::{self, Record};

/// Decides entries for one reader.
pub(crate) struct Judge {
    shared: Arc<Shared>,
    ids: DeliveryIds,
}

impl Judge {
    pub(crate) fn new(shared: Arc<Shared>) -> Judge {
        Judge {
            shared,
            ids: DeliveryIds::new(),
        }
    }

    /// Gets the records of all relays that entries of the batch answer, in one go.
    pub(crate) async fn records(
        &self,
        entries: &[Read],
    ) -> Result<Vec<Option<Record>>, StoreError> {
        let options = self.shared.directory.options();
        let mut asked = Vec::new();
        let mut keys = Vec::new();
        for (index, read) in entries.iter().enumerate() {
            let (ReadEntry::Whole(Entry { fields, .. }) | ReadEntry::Oversize { head: fields, .. }) =
                &read.entry
            else {
                continue;
            };
            if !may_be_answer(fields) {
                continue;
            }
            if let Some(delivery) = answered_delivery(&Message::read(fields), &options) {
                asked.push(index);
                keys.push(options.keyspace.awaited(delivery));
            }
        }
        let mut records = vec![None; entries.len()];
        if keys.is_empty() {
            return Ok(records);
        }
        for (index, value) in asked
            .into_iter()
            .zip(self.shared.store.get_many(&keys).await?)
        {
            if let (Some(place), Some(value)) = (records.get_mut(index), value) {
                *place = Record::parse(&value);
            }
        }
        Ok(records)
    }

    /// Decides a site's entry; `None` when it is a command for the daemon. `trace` is the span of
    /// its crossing, where that is recorded.
    pub(crate) async fn cross(
        &mut self,
        stream: &SiteStream,
        entry: &Entry,
        record: Option<&Record>,
        trace: Option<TraceParent>,
    ) -> Result<Option<Decided>, StoreError> {
        if !self.shared.store.is_atomic() && !self.ids.repeats() {
            self.learn_secret().await?;
        }
        let mut tried = Tried::Nothing;
        loop {
            let started = Instant::now();
            let step = {
                let options = self.shared.directory.options();
                let policy = self.shared.directory.policy();
                let formats = self.shared.directory.formats();
                let registry = self.shared.directory.registry();
                let crossing = Crossing {
                    options: &options,
                    registry: &registry,
                    policy: &policy,
                    limiter: &self.shared.limiter,
                    formats: &formats,
                    now_ms: now_ms(),
                    trace,
                };
                crossing.cross(stream, entry, record, &tried, &mut self.ids)
            };
            self.shared
                .counters
                .decide
                .observe(started.elapsed().as_secs_f64());
            let asked = match step {
                Step::Settle(decided) => return Ok(Some(decided)),
                Step::Run => return Ok(None),
                Step::LookUp(name) => self
                    .shared
                    .directory
                    .look_up(name.as_str())
                    .await
                    .map_err(DirectoryError::from),
                Step::Adopt(target) => self.shared.directory.adopt(&target, now_ms()).await,
            };
            tried = match asked {
                Ok(()) => Tried::Asked,
                Err(DirectoryError::Refused(refusal)) => Tried::Refused(refusal),
                Err(DirectoryError::Store(error)) => return Err(error),
            };
        }
    }

    /// Where a delivery may be repeated, all daemons must give an entry the same delivery id: the
    /// secret from which that is derived lies on the store. Whoever is first makes it.
    async fn learn_secret(&mut self) -> Result<(), StoreError> {
        let key = self.shared.directory.options().keyspace.members();
        let secret = ids::shared_secret(&*self.shared.store, &key).await?;
        self.ids.repeat(&secret);
        Ok(())
    }

    pub(crate) async fn command(
        &self,
        stream: &SiteStream,
        entry: &Entry,
    ) -> Result<Decided, StoreError> {
        let message = Message::read(&entry.fields);
        let commands = Commands {
            directory: &self.shared.directory,
            store: &*self.shared.store,
            telemetry: &self.shared.telemetry,
            channels: &self.shared.channels,
            limiter: &self.shared.limiter,
        };
        let caller = Caller {
            stream,
            site: &stream.site,
            node: message.source_node().unwrap_or_default(),
            environment: &stream.environment,
            entry: entry.id,
            item: 0,
        };
        let options = self.shared.directory.options();
        let sender = Addressee::of(&message, entry.id, stream);
        let kind = if message.kind() == Some(Kind::BatchCommand) {
            "br"
        } else {
            "r"
        };
        let mut appends = Vec::new();
        match commands.run(&caller, &message, &mut appends).await {
            Ok(result) => {
                appends.push(sender.result(&options, now_ms(), kind, result));
                let settlement = Settlement {
                    appends,
                    ..Settlement::acknowledge(stream.key.clone(), entry.id)
                };
                Ok(Decided {
                    settlement,
                    outcome: Outcome::Command,
                    objection: None,
                    forged: false,
                    passage: None,
                    translation: Translated::No,
                })
            }
            Err(DirectoryError::Refused(refusal)) => {
                Ok(self.refusal(&sender, stream.key.clone(), entry.id, refusal))
            }
            Err(DirectoryError::Store(error)) => Err(error),
        }
    }

    /// An entry that can't be decided because the store keeps refusing what that takes: its sender
    /// is told, and it is kept in the dead stream.
    pub(crate) fn undecidable(
        &self,
        source: &Source,
        entry: &Entry,
        error: &StoreError,
    ) -> Decided {
        let options = self.shared.directory.options();
        let refusal = Refusal::new(Code::Unavailable, error.to_string());
        let Source::Site(stream) = source else {
            let mut decided = bare(options.keyspace.register(), entry.id, Outcome::Refused);
            decided.objection = Some(Objection {
                guard: NO_GUARD,
                refusal,
            });
            return decided;
        };
        let message = Message::read(&entry.fields);
        let sender = Addressee::of(&message, entry.id, stream);
        let mut decided = self.refusal(&sender, stream.key.clone(), entry.id, refusal.clone());
        let dead = Dead {
            stream,
            entry,
            refusal: &refusal,
            attempts: options.max_attempts,
            whole: true,
        };
        decided
            .settlement
            .appends
            .push(dead.append(&options, now_ms()));
        decided
    }

    fn refusal(
        &self,
        sender: &Addressee,
        stream: Key,
        entry: EntryId,
        refusal: Refusal,
    ) -> Decided {
        let options = self.shared.directory.options();
        let settlement = Settlement {
            appends: vec![sender.refusal(&options, now_ms(), &refusal)],
            puts: vec![sender.poll_refusal(&options, now_ms(), &refusal)],
            ..Settlement::acknowledge(stream, entry)
        };
        let objection = Some(Objection {
            guard: NO_GUARD,
            refusal,
        });
        Decided {
            settlement,
            outcome: Outcome::Refused,
            objection,
            forged: false,
            passage: None,
            translation: Translated::No,
        }
    }

    pub(crate) async fn register(
        &self,
        stream: &Key,
        entry: &Entry,
    ) -> Result<Decided, StoreError> {
        let message = Message::read(&entry.fields);
        let commands = Commands {
            directory: &self.shared.directory,
            store: &*self.shared.store,
            telemetry: &self.shared.telemetry,
            channels: &self.shared.channels,
            limiter: &self.shared.limiter,
        };
        let mut decided = bare(stream.clone(), entry.id, Outcome::Command);
        match commands.register_new(&message, entry.id).await {
            Ok((registration, result)) => {
                let options = self.shared.directory.options();
                if let Some(environment) = registration.environments.first() {
                    let home = options.keyspace.unified(&registration.site, environment);
                    let newcomer = Addressee::of(&message, entry.id, &home);
                    decided.settlement.appends.push(newcomer.result(
                        &options,
                        now_ms(),
                        "r",
                        result,
                    ));
                }
            }
            // Nobody is told: an answer would go to a site that may have nothing to do with it.
            Err(DirectoryError::Refused(refusal)) => {
                decided.outcome = Outcome::Refused;
                decided.objection = Some(Objection {
                    guard: NO_GUARD,
                    refusal,
                });
            }
            Err(DirectoryError::Store(error)) => return Err(error),
        }
        Ok(decided)
    }

    /// An entry that was too large to take in. It stays in its stream; the dead stream says where.
    pub(crate) fn oversize(
        &self,
        source: &Source,
        head: &Entry,
        bytes: u64,
        fields: u64,
        record: Option<&Record>,
    ) -> Decided {
        let options = self.shared.directory.options();
        let message = Message::read(&head.fields);
        let Source::Site(stream) = source else {
            return bare(options.keyspace.register(), head.id, Outcome::Meaningless);
        };
        if let (Some(delivery), Some(record)) = (answered_delivery(&message, &options), record) {
            let answer = reply::Answer {
                message: &message,
                entry: head.id,
                from: stream,
                delivery,
                record,
                trace: None,
            };
            if let Some(settlement) = answer.fail(&options, now_ms(), &reply::too_large(bytes)) {
                return Decided {
                    settlement,
                    outcome: Outcome::Answered,
                    objection: None,
                    forged: false,
                    passage: None,
                    translation: Translated::No,
                };
            }
        }
        let unseen = fields > options.max_fields as u64;
        if message.kind().is_some_and(Kind::is_answer) || (message.target().is_none() && !unseen) {
            return bare(stream.key.clone(), head.id, Outcome::Passed);
        }
        let reason = format!(
            "the entry has {bytes} bytes in {fields} fields; {} bytes in {} fields are allowed",
            options.max_entry_bytes, options.max_fields
        );
        let refusal = Refusal::new(Code::TooLarge, reason);
        let sender = Addressee::of(&message, head.id, stream);
        let mut decided = self.refusal(&sender, stream.key.clone(), head.id, refusal.clone());
        decided.settlement.appends.push(
            Dead {
                stream,
                entry: head,
                refusal: &refusal,
                attempts: 1,
                whole: false,
            }
            .append(&options, now_ms()),
        );
        decided
    }
}

/// A settlement that only takes an entry off the pending list.
pub(crate) fn bare(stream: Key, entry: EntryId, outcome: Outcome) -> Decided {
    Decided {
        settlement: Settlement::acknowledge(stream, entry),
        outcome,
        objection: None,
        forged: false,
        passage: None,
        translation: Translated::No,
    }
}

/// A cheap look before the whole entry is understood.
pub(crate) fn may_be_answer(fields: &Fields) -> bool {
    fields
        .get(b"t")
        .or_else(|| fields.get(b"type"))
        .is_some_and(|kind| matches!(&**kind, b"r" | b"br"))
}

/// Milliseconds since the epoch, by the system's clock.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
