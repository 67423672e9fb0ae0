//! Reading as a group's consumer, from all nodes.
//!
//! A wait on many streams must stay within one slot, so nothing waits on a node: each tells which
//! keys were written, and those of them that are read here are then asked for. A watched key may
//! lie on another node than a stream, so before entries are given every node is asked for a sign of
//! life: what it told of changes comes before it. A change that was acknowledged before an entry
//! was written is so told no later than the entry.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use crossway_core::entry::EntryId;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::links::{Call, Links};
use super::places::Places;
use super::settle::Settling;
use super::slot::slot;
use super::work::{held, is_held};
use crate::streams::valkey::encode::Outgoing;
use crate::streams::valkey::entries::{Answer, AnswerBuilder, Limits};
use crate::streams::valkey::frame::{Frame, FrameBuilder};
use crate::streams::{
    Batch, Fence, GroupReader, Interrupt, Key, Read, ReaderOptions, Settled, Settlement, StoreError,
};

/// Gives one consumer of a group what is pending for the others, and removes them.
const INHERIT: &str = include_str!("../valkey/reader/inherit.lua");

/// Streams read at once; each gives up to `count` entries.
const AT_ONCE: usize = 64;
/// How often a wait looks whether a node that couldn't be reached is back.
const RETRY: Duration = Duration::from_millis(250);

/// A reader of a cluster.
pub(crate) struct ClusterReader {
    links: Links,
    options: ReaderOptions,
    places: Places,
    rewound: bool,
    /// A read has been begun: if that is still so at the next one, it was given up in the middle,
    /// and what it had read is pending.
    reading: bool,
    /// What became of submissions, until it is asked for.
    outcomes: VecDeque<Vec<Settled>>,
    /// What the next batch will tell.
    report: Batch,
    interrupt: Arc<Notify>,
    allowed: Option<Instant>,
}

impl ClusterReader {
    pub(crate) fn new(links: Links, options: ReaderOptions) -> ClusterReader {
        ClusterReader {
            links,
            options,
            places: Places::new(Instant::now()),
            rewound: false,
            reading: false,
            outcomes: VecDeque::new(),
            report: Batch::default(),
            interrupt: Arc::new(Notify::new()),
            allowed: None,
        }
    }

    fn may_read(&self) -> bool {
        self.allowed.is_none_or(|until| Instant::now() < until)
    }

    /// Looks, and waits, until there is something to give or it took long enough.
    async fn turns(&mut self) -> Result<Batch, StoreError> {
        let enough = Instant::now() + self.options.block;
        loop {
            self.links.open_all().await?;
            self.begin_anew().await;
            self.listen();
            let due = if self.may_read() {
                self.places.due(AT_ONCE, Instant::now())
            } else {
                Vec::new()
            };
            let idle = due.is_empty();
            let entries = self.read_from(due).await?;
            if !entries.is_empty() {
                self.hear_of_changes().await?;
                return Ok(self.batch(entries));
            }
            let told = &self.report;
            if told.changed || !told.remade.is_empty() || !told.not_streams.is_empty() {
                return Ok(self.batch(Vec::new()));
            }
            if idle && (Instant::now() >= enough || !self.wait(enough).await) {
                self.listen();
                return Ok(self.batch(Vec::new()));
            }
        }
    }

    /// Waits for a node to tell something; `false` when the wait was interrupted or is over.
    async fn wait(&mut self, enough: Instant) -> bool {
        let wake = enough
            .min(self.places.next_routine())
            .min(Instant::now() + RETRY);
        let ClusterReader {
            links, interrupt, ..
        } = self;
        tokio::select! {
            biased;
            () = interrupt.notified() => false,
            () = poll_fn(|cx| links.poll_told(cx)) => true,
            () = sleep_until(wake.into()) => Instant::now() < enough,
        }
    }

    /// Takes in what the nodes have told.
    fn listen(&mut self) {
        let (written, changed) = self.links.take_told();
        self.report.changed |= changed;
        for written in written {
            if written.all {
                self.places.stir_all();
            }
            for key in written.keys {
                if let Ok(key) = std::str::from_utf8(&key) {
                    self.places.stir(key);
                }
            }
        }
    }

    /// Nobody listened to a node that was connected to just now, and what a broken connection had
    /// been given is pending.
    async fn begin_anew(&mut self) {
        let fresh = self.links.take_fresh();
        if fresh.is_empty() {
            return;
        }
        self.report.changed = true;
        let map = self.links.map().await;
        self.places.rewind(|key| {
            map.owner(slot(key))
                .is_none_or(|master| fresh.contains(&master.host))
        });
    }

    /// Hears everything that was told before now, by every node that has a watched key.
    async fn hear_of_changes(&mut self) -> Result<(), StoreError> {
        let calls: Vec<Call> = self
            .options
            .watched
            .iter()
            .map(|key| {
                let mut out = Outgoing::default();
                out.line(&[b"EXISTS", key.as_bytes()]);
                Call {
                    slot: slot(key),
                    pieces: out.pieces(),
                }
            })
            .collect();
        for answer in self.links.round(&calls, false, FrameBuilder::default).await {
            if let Frame::Error(text) = answer? {
                return Err(self.refused("EXISTS", "", &text));
            }
        }
        // Whoever had to be connected to anew hadn't told what changed before.
        self.report.changed |= self.links.has_fresh();
        self.listen();
        Ok(())
    }

    async fn read_from(
        &mut self,
        due: Vec<(Key, Option<EntryId>)>,
    ) -> Result<Vec<Read>, StoreError> {
        if due.is_empty() {
            return Ok(Vec::new());
        }
        self.inherit(&due).await;
        let calls: Vec<Call> = due
            .iter()
            .map(|(key, after)| self.command(key, *after))
            .collect();
        let limits = Limits {
            bytes: self.options.max_entry_bytes,
            fields: self.options.max_fields,
        };
        let answers = self
            .links
            .round(&calls, false, || AnswerBuilder::new(limits))
            .await;
        let (mut reads, mut missing, mut refusal) = (Vec::new(), Vec::new(), None);
        for ((key, _), answer) in due.into_iter().zip(answers) {
            match answer {
                Ok(Answer::Streams(streams)) => {
                    let entries: Vec<_> = streams
                        .into_iter()
                        .flat_map(|(_, entries)| entries)
                        .collect();
                    self.places.took(&key, &entries, self.options.count);
                    reads.extend(entries.into_iter().map(|entry| Read {
                        stream: key.clone(),
                        entry,
                    }));
                }
                Ok(Answer::Refused(text)) if text.starts_with(b"NOGROUP") => missing.push(key),
                Ok(Answer::Refused(text)) if text.starts_with(b"WRONGTYPE") => {
                    self.places.leave_out(&key, Instant::now());
                    self.report.not_streams.push(key);
                }
                // It is read again with the next routine; meanwhile the others are.
                Err(_) => self.places.rewind(|other| *other == *key),
                Ok(Answer::Refused(text)) => {
                    self.places.rewind(|other| *other == *key);
                    let error = self.refused("XREADGROUP", &key, &text);
                    if !error.is_transient() {
                        refusal = Some(error);
                    }
                }
            }
        }
        self.make_groups(missing).await?;
        match refusal {
            Some(error) if reads.is_empty() => Err(error),
            _ => Ok(reads),
        }
    }

    fn command(&self, key: &Key, after: Option<EntryId>) -> Call {
        let mut out = Outgoing::default();
        out.command(9).word(b"XREADGROUP").word(b"GROUP");
        out.word(self.options.group.as_bytes())
            .word(self.options.consumer.as_bytes());
        out.word(b"COUNT")
            .number(u64::try_from(self.options.count.max(1)).unwrap_or(u64::MAX));
        out.word(b"STREAMS").word(key.as_bytes());
        match after {
            None => out.word(b">"),
            Some(id) => out.id(id),
        };
        Call {
            slot: slot(key),
            pieces: out.pieces(),
        }
    }

    /// Takes over what other consumers of groups hold that weren't read before: a group has one
    /// reader at a time, so whoever they belonged to is gone.
    async fn inherit(&mut self, due: &[(Key, Option<EntryId>)]) {
        let new: Vec<&Key> = due
            .iter()
            .map(|(key, _)| key)
            .filter(|key| self.places.is_new(key))
            .collect();
        let calls: Vec<Call> = new
            .iter()
            .map(|key| {
                let mut out = Outgoing::default();
                let (group, heir) = (&self.options.group, &self.options.consumer);
                let (group, heir) = (group.as_bytes(), heir.as_bytes());
                out.line(&[
                    b"EVAL",
                    INHERIT.as_bytes(),
                    b"1",
                    key.as_bytes(),
                    group,
                    heir,
                ]);
                Call {
                    slot: slot(key),
                    pieces: out.pieces(),
                }
            })
            .collect();
        let answers = self.links.round(&calls, false, FrameBuilder::default).await;
        for (key, answer) in new.into_iter().zip(answers) {
            match answer {
                Ok(Frame::Integer(entries)) if entries > 0 => {
                    tracing::info!(
                        stream = &**key,
                        entries,
                        "took over what others had in hand"
                    );
                }
                // Without the group there is nothing to take over, and reading makes it.
                Ok(_) | Err(_) => {}
            }
        }
    }

    async fn make_groups(&mut self, missing: Vec<Key>) -> Result<(), StoreError> {
        if missing.is_empty() {
            return Ok(());
        }
        let calls: Vec<Call> = missing
            .iter()
            .map(|key| {
                let mut out = Outgoing::default();
                let (name, group) = (key.as_bytes(), self.options.group.as_bytes());
                out.line(&[b"XGROUP", b"CREATE", name, group, b"0", b"MKSTREAM"]);
                Call {
                    slot: slot(key),
                    pieces: out.pieces(),
                }
            })
            .collect();
        let answers = self.links.round(&calls, true, FrameBuilder::default).await;
        for (key, answer) in missing.into_iter().zip(answers) {
            match answer {
                Ok(Frame::Error(text)) if text.starts_with(b"BUSYGROUP") => {
                    self.places.has_group(&key, false);
                }
                Ok(Frame::Error(text)) => {
                    let error = self.refused("XGROUP CREATE", &key, &text);
                    if !error.is_transient() {
                        tracing::warn!(%error, "a stream is left out");
                        self.places.leave_out(&key, Instant::now());
                    }
                }
                Ok(_) => {
                    if self.places.has_group(&key, true) {
                        self.report.remade.push(key);
                    }
                }
                Err(error) => tracing::debug!(%error, "making a group"),
            }
        }
        Ok(())
    }

    fn refused(&self, command: &'static str, key: &str, text: &[u8]) -> StoreError {
        StoreError::Refused {
            command,
            key: key.to_owned(),
            reason: String::from_utf8_lossy(text).into_owned(),
        }
    }

    fn batch(&mut self, entries: Vec<Read>) -> Batch {
        Batch {
            entries,
            ..std::mem::take(&mut self.report)
        }
    }
}

#[async_trait]
impl GroupReader for ClusterReader {
    fn assign(&mut self, streams: Vec<Key>) {
        self.places.assign(streams);
    }

    fn allow(&mut self, until: Instant) {
        self.allowed = Some(until);
    }

    async fn read(&mut self) -> Result<Batch, StoreError> {
        let given_up = std::mem::replace(&mut self.reading, true);
        if std::mem::take(&mut self.rewound) || given_up {
            self.places.rewind(|_| true);
        }
        let result = self.turns().await;
        self.reading = false;
        self.rewound |= result.is_err();
        result
    }

    fn rewind(&mut self) {
        self.rewound = true;
    }

    async fn submit(
        &mut self,
        fence: &Fence,
        settlements: Vec<Settlement>,
    ) -> Result<(), StoreError> {
        // What was submitted before and waits mustn't be overtaken.
        let waits = self.outcomes.iter().flatten().any(is_held);
        let settled = if waits {
            Ok(held(&settlements))
        } else {
            let mut settling = Settling {
                links: &mut self.links,
                group: &self.options.group,
                consumer: &self.options.consumer,
            };
            settling.all(fence, &settlements).await
        };
        match settled {
            Ok(settled) => {
                self.outcomes.push_back(settled);
                Ok(())
            }
            Err(error) => {
                self.outcomes.clear();
                self.rewound |= !matches!(error, StoreError::Fenced);
                Err(error)
            }
        }
    }

    async fn outcome(&mut self) -> Result<Option<Vec<Settled>>, StoreError> {
        Ok(self.outcomes.pop_front())
    }

    fn interrupter(&self) -> Box<dyn Interrupt> {
        Box::new(Interrupter(Arc::clone(&self.interrupt)))
    }
}

/// Keeps one interruption for a reader that isn't reading yet, so that none is missed.
struct Interrupter(Arc<Notify>);

#[async_trait]
impl Interrupt for Interrupter {
    async fn interrupt(&self) {
        self.0.notify_one();
    }
}
