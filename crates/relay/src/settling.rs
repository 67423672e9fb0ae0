//! Carrying out what was decided, and what happens when the store won't have it.

use std::sync::Arc;
use std::time::Instant;

use crossway_core::address::SiteStream;
use crossway_core::code::{Code, Refusal};
use crossway_core::entry::{Entry, EntryId};
use crossway_core::guard::Objection;
use crossway_core::message::Message;
use crossway_transport::streams::{
    Append, Fence, Key, Read, ReadEntry, Settled, Settlement, StoreError, is_transient,
};

use crate::answers::Addressee;
use crate::counters::{NO_GUARD, Outcome};
use crate::crossing::{Decided, Translated};
use crate::dead::Dead;
use crate::judge::{bare, now_ms};
use crate::reader::{GivenUp, Reader, Source};
use crate::telemetry::{Ended, Passage};
use crate::traces::Trace;

impl Reader {
    /// Hands over what was decided so far; what becomes of it is heard later.
    pub(crate) async fn submit(&mut self, work: &mut Work, fence: &Fence) -> Result<(), GivenUp> {
        if work.decided.is_empty() {
            return Ok(());
        }
        let Work { decided, subjects } = std::mem::replace(work, Work::new());
        let mut notes = Vec::with_capacity(decided.len());
        let mut settlements = Vec::with_capacity(decided.len());
        for (decided, mut subject) in decided.into_iter().zip(subjects) {
            let (settlement, note) = decided.split();
            settlements.push(settlement);
            if let Some(trace) = &mut subject.trace {
                trace.handed_over();
            }
            notes.push((note, subject));
        }
        self.reader.submit(fence, settlements).await?;
        self.handed_over.push_back(HandedOver {
            at: Instant::now(),
            read_at: self.read_at,
            notes,
        });
        Ok(())
    }

    /// Hears what became of all submissions but the newest `keep`, and sees to those entries that
    /// the store wouldn't have; for that everything is heard.
    pub(crate) async fn hear(&mut self, keep: usize, fence: &Fence) -> Result<(), GivenUp> {
        let mut refused = Vec::new();
        while self.handed_over.len() > keep || !(refused.is_empty() || self.handed_over.is_empty())
        {
            let Some(HandedOver { at, read_at, notes }) = self.handed_over.pop_front() else {
                break;
            };
            let settled = self.reader.outcome().await?.unwrap_or_default();
            self.shared
                .counters
                .settle
                .observe(at.elapsed().as_secs_f64());
            for ((note, mut subject), settled) in notes.into_iter().zip(settled) {
                match settled {
                    Settled::Done => self.record(&note, &mut subject, read_at),
                    Settled::NotPending => self.shared.counters.count(Outcome::Settled),
                    Settled::Unmet | Settled::Failed(_) => refused.push((note, subject, settled)),
                }
            }
        }
        for (note, mut subject, settled) in refused {
            if let Some(trace) = &mut subject.trace {
                trace.turned_down();
            }
            match settled {
                // The record was consumed by another answer, or its time ran out, meanwhile.
                Settled::Unmet => {
                    let decided = bare(note.stream, note.entry, Outcome::ReplyUnknown);
                    self.settle_one(decided, &mut subject, fence).await?;
                }
                Settled::Failed(reason) if is_transient(&reason) => {
                    return Err(passing(&note.stream, reason));
                }
                Settled::Failed(reason) => self.retry(&mut subject, reason, fence).await?,
                Settled::Done | Settled::NotPending => {}
            }
        }
        Ok(())
    }

    /// Settles one entry by itself; `Some` is the store's reason for not doing it.
    async fn settle_one(
        &mut self,
        decided: Decided,
        subject: &mut Subject,
        fence: &Fence,
    ) -> Result<Option<String>, GivenUp> {
        if let Some(trace) = &mut subject.trace {
            trace.decided(&decided);
            trace.handed_over();
        }
        let (settlement, note) = decided.split();
        match self
            .reader
            .settle(fence, vec![settlement])
            .await?
            .into_iter()
            .next()
        {
            Some(Settled::Failed(reason)) if is_transient(&reason) => {
                return Err(passing(&note.stream, reason));
            }
            Some(Settled::Failed(reason)) => {
                if let Some(trace) = &mut subject.trace {
                    trace.turned_down();
                }
                return Ok(Some(reason));
            }
            Some(Settled::Done) => self.record(&note, subject, self.read_at),
            Some(Settled::NotPending) | None => self.shared.counters.count(Outcome::Settled),
            Some(Settled::Unmet) => {}
        }
        Ok(None)
    }

    /// The store refused one of an entry's writes: try again where that may help, then tell the
    /// sender and keep the entry in the dead stream.
    async fn retry(
        &mut self,
        subject: &mut Subject,
        mut reason: String,
        fence: &Fence,
    ) -> Result<(), GivenUp> {
        let options = self.shared.directory.options();
        let Source::Site(stream) = subject.source.clone() else {
            return self.bury(None, subject, &reason, 1, fence).await;
        };
        let context = subject.trace.as_ref().map(|trace| trace.context());
        let mut attempts = 1;
        while attempts < options.max_attempts && !reason.starts_with("WRONGTYPE") {
            attempts += 1;
            let records = [Read {
                stream: stream.key.clone(),
                entry: ReadEntry::Whole(subject.entry.clone()),
            }];
            let record = self.judge.records(&records).await?.pop().flatten();
            let Some(decided) = self
                .judge
                .cross(&stream, &subject.entry, record.as_ref(), context)
                .await?
            else {
                break;
            };
            match self.settle_one(decided, subject, fence).await? {
                None => return Ok(()),
                Some(again) => reason = again,
            }
        }
        self.bury(Some(&stream), subject, &reason, attempts, fence)
            .await
    }

    async fn bury(
        &mut self,
        stream: Option<&SiteStream>,
        subject: &mut Subject,
        reason: &str,
        attempts: u32,
        fence: &Fence,
    ) -> Result<(), GivenUp> {
        let options = self.shared.directory.options();
        let Some(stream) = stream else {
            let register = options.keyspace.register();
            let decided = bare(register, subject.entry.id, Outcome::Meaningless);
            self.settle_one(decided, subject, fence).await?;
            return Ok(());
        };
        let entry = subject.entry.clone();
        let refusal = Refusal::new(
            Code::Undeliverable,
            format!("the store refused the delivery {attempts} times: {reason}"),
        );
        let message = Message::read(&entry.fields);
        let dead = Dead {
            stream,
            entry: &entry,
            refusal: &refusal,
            attempts,
            whole: true,
        }
        .append(&options, now_ms());
        let passage = message
            .target()
            .map(|target| Passage::new(&stream.site, &target, message.command()));
        let kept = |told: Option<Append>| Decided {
            settlement: Settlement {
                appends: [Some(dead.clone()), told].into_iter().flatten().collect(),
                ..Settlement::acknowledge(stream.key.clone(), entry.id)
            },
            outcome: Outcome::Dead,
            objection: Some(Objection {
                guard: NO_GUARD,
                refusal: refusal.clone(),
            }),
            forged: false,
            passage: passage.clone(),
            translation: Translated::No,
        };
        let told = message.target().map(|_| {
            Addressee::of(&message, entry.id, stream).refusal(&options, now_ms(), &refusal)
        });
        if self.settle_one(kept(told), subject, fence).await?.is_some()
            && let Some(reason) = self.settle_one(kept(None), subject, fence).await?
        {
            tracing::error!(stream = &*stream.key, entry = %entry.id, %reason, "an entry can't even be kept in the dead stream; it stays pending");
        }
        Ok(())
    }

    /// Counts and, where it is a refusal or meaningless, writes one line.
    fn record(&mut self, note: &Note, subject: &mut Subject, read_at: Instant) {
        if let Some(passage) = &note.passage {
            let ended = match (note.outcome, &note.translation) {
                (Outcome::Relayed, Translated::Yes) => Ended::Translated,
                (Outcome::Relayed, _) => Ended::Relayed,
                _ => Ended::Refused,
            };
            let telemetry = &self.shared.telemetry;
            telemetry.count(passage, ended, read_at.elapsed());
        }
        let counters = Arc::clone(&self.shared.counters);
        if let Some(trace) = subject.trace.take()
            && let Some(traces) = &self.shared.directory.options().traces
        {
            trace.finish(note.outcome, note.objection.as_ref(), traces, &counters);
        }
        counters.count(note.outcome);
        if note.forged {
            counters.forged_sources.inc();
        }
        if let Some(Objection { guard, refusal }) = &note.objection {
            counters.refuse(refusal.code, guard);
            tracing::info!(stream = &*note.stream, entry = %note.entry, code = %refusal.code, guard, reason = %refusal.message.escape_debug(), "refused");
        }
        match &note.translation {
            Translated::No => {}
            Translated::Yes => counters.translated(true),
            Translated::Failed(reason) => {
                counters.translated(false);
                let to = note.told.as_deref().unwrap_or_default();
                if self.may_write_about(&format!("{} {to}", note.stream).into()) {
                    tracing::warn!(from = &*note.stream, to, %reason, "what can't be translated went on as it came");
                }
            }
        }
        match note.outcome {
            Outcome::Meaningless if self.may_write_about(&note.stream) => {
                let message = Message::read(&subject.entry.fields);
                let names = message.names();
                tracing::warn!(stream = &*note.stream, entry = %note.entry, fields = names, "an entry that says nothing was passed over");
            }
            Outcome::ReplyForeign => {
                tracing::warn!(stream = &*note.stream, entry = %note.entry, "an answer to a command that went to another site was not carried");
            }
            _ => {}
        }
    }
}

/// A refusal that will pass: the batch is given up, and what of it wasn't settled is read again.
fn passing(stream: &Key, reason: String) -> GivenUp {
    GivenUp::Store(StoreError::Refused {
        command: "settling",
        key: stream.to_string(),
        reason,
    })
}

/// What the store was given and hasn't answered for.
pub(crate) struct HandedOver {
    at: Instant,
    read_at: Instant,
    notes: Vec<(Note, Subject)>,
}

impl Decided {
    fn split(self) -> (Settlement, Note) {
        let Decided {
            settlement,
            outcome,
            objection,
            forged,
            passage,
            translation,
        } = self;
        let note = Note {
            stream: settlement.stream.clone(),
            entry: settlement.entry,
            outcome,
            objection,
            forged,
            passage,
            translation,
            told: settlement
                .appends
                .first()
                .map(|append| append.stream.clone()),
        };
        (settlement, note)
    }
}

/// What is known of a settlement after it was handed to the store.
struct Note {
    stream: Key,
    entry: EntryId,
    outcome: Outcome,
    objection: Option<Objection>,
    forged: bool,
    passage: Option<Passage>,
    translation: Translated,
    /// The stream that was written to first: the target's, or the sender's.
    told: Option<Key>,
}

/// Decisions that wait to be settled, with what they were decided on.
pub(crate) struct Work {
    pub(crate) decided: Vec<Decided>,
    subjects: Vec<Subject>,
}

/// What a decision was made on.
pub(crate) struct Subject {
    source: Source,
    entry: Entry,
    /// The span of its crossing, where that is recorded.
    trace: Option<Box<Trace>>,
}

impl Subject {
    pub(crate) fn new(source: Source, entry: Entry, trace: Option<Box<Trace>>) -> Subject {
        Subject {
            source,
            entry,
            trace,
        }
    }
}

impl Work {
    pub(crate) fn new() -> Work {
        Work {
            decided: Vec::new(),
            subjects: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, decided: Decided, mut subject: Subject) {
        if let Some(trace) = &mut subject.trace {
            trace.decided(&decided);
        }
        self.decided.push(decided);
        self.subjects.push(subject);
    }
}
