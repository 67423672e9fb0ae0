//! Reads over the protocol that wait for something to arrive, in the order they came.
//!
//! Whoever writes serves them before the lock is given back, so that nobody who came later can
//! take what they wait for.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use crossway_core::entry::EntryId;
use tokio::sync::oneshot;

use super::engine::{ReadOne, Refusal};
use super::{Position, State};
use crate::streams::StoreError;

/// A read that can wait.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    /// Entries after these ids.
    After(Vec<(Bytes, EntryId)>),
    /// What a group hasn't read.
    New {
        group: Bytes,
        consumer: Bytes,
        streams: Vec<Bytes>,
        keep_pending: bool,
    },
}

impl Wanted {
    fn keys(&self) -> Vec<Bytes> {
        match self {
            Wanted::After(streams) => streams.iter().map(|(key, _)| key.clone()).collect(),
            Wanted::New { streams, .. } => streams.clone(),
        }
    }
}

/// Why a command wasn't carried out.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The data doesn't allow it.
    Refused(Refusal),
    /// The log doesn't take it.
    Store(StoreError),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Fault {
        Fault::Refused(refusal)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        Fault::Store(error)
    }
}

/// Streams with the entries that were read from them.
pub(crate) type Streamed = Vec<(Bytes, Vec<ReadOne>)>;

/// What a waiting read gets in the end, and from which place in the log on it may be shown.
pub(crate) type Served = (Result<Streamed, Fault>, Position);

#[derive(Debug)]
struct Waiting {
    wanted: Wanted,
    count: usize,
    answer: oneshot::Sender<Served>,
}

#[derive(Debug, Default)]
pub(crate) struct Blocked {
    last: u64,
    waiting: BTreeMap<u64, Waiting>,
    by_key: HashMap<Bytes, BTreeSet<u64>>,
}

impl Blocked {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn waits_for(&self, key: &[u8]) -> bool {
        self.by_key.contains_key(key)
    }

    /// Lets a read wait; gives its ticket.
    pub(crate) fn wait(
        &mut self,
        wanted: Wanted,
        count: usize,
    ) -> (u64, oneshot::Receiver<Served>) {
        self.last = self.last.saturating_add(1);
        for key in wanted.keys() {
            self.by_key.entry(key).or_default().insert(self.last);
        }
        let (answer, receiver) = oneshot::channel();
        self.waiting.insert(
            self.last,
            Waiting {
                wanted,
                count,
                answer,
            },
        );
        (self.last, receiver)
    }

    /// A read waits no longer.
    pub(crate) fn leave(&mut self, ticket: u64) {
        self.take(ticket);
    }

    fn take(&mut self, ticket: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&ticket)?;
        for key in waiting.wanted.keys() {
            if let Some(tickets) = self.by_key.get_mut(&key) {
                tickets.remove(&ticket);
                if tickets.is_empty() {
                    self.by_key.remove(&key);
                }
            }
        }
        Some(waiting)
    }
}

impl State {
    /// A read waits no longer, which it did until now.
    pub(crate) fn leave_blocked(&mut self, ticket: u64, now: u64) {
        for key in self
            .blocked
            .take(ticket)
            .iter()
            .flat_map(|read| read.wanted.keys())
        {
            self.engine.note_use(&key, now);
        }
    }

    /// Serves reads that wait for a key that something has happened to.
    pub(crate) fn serve_blocked(&mut self, now: u64) {
        for key in std::mem::take(&mut self.stirred) {
            let tickets: Vec<u64> = self
                .blocked
                .by_key
                .get(&key)
                .into_iter()
                .flatten()
                .copied()
                .collect();
            for ticket in tickets {
                self.serve(ticket, &key, now);
            }
        }
    }

    fn serve(&mut self, ticket: u64, key: &Bytes, now: u64) {
        let Some(waiting) = self.blocked.waiting.get(&ticket) else {
            return;
        };
        if waiting.answer.is_closed() {
            // Its client has gone; nothing may be delivered to it.
            self.blocked.leave(ticket);
            return;
        }
        let (wanted, count) = (waiting.wanted.clone(), waiting.count);
        let result = match self.read_one(&wanted, key, count, now) {
            Ok(entries) if entries.is_empty() => return,
            Ok(entries) => Ok(vec![(key.clone(), entries)]),
            Err(Fault::Refused(_)) if matches!(wanted, Wanted::After(_)) => return,
            Err(Fault::Refused(refusal)) if refusal == Refusal::WRONG_TYPE => {
                Err(Fault::Refused(refusal))
            }
            Err(Fault::Refused(_)) if self.engine.value(key, now).is_none() => {
                Err(Refusal::STREAM_WENT.into())
            }
            Err(Fault::Refused(_)) => Err(Refusal::GROUP_WENT.into()),
            Err(error) => Err(error),
        };
        let position = self.position();
        if let Some(waiting) = self.blocked.take(ticket) {
            // A client that left this very moment finds what it was given on its pending list.
            let _ = waiting.answer.send((result, position));
        }
    }

    /// Reads from one of the streams that a read wants.
    pub(crate) fn read_one(
        &mut self,
        wanted: &Wanted,
        key: &Bytes,
        count: usize,
        now: u64,
    ) -> Result<Vec<ReadOne>, Fault> {
        match wanted {
            Wanted::After(streams) => {
                let Some((_, after)) = streams.iter().find(|(stream, _)| stream == key) else {
                    return Ok(Vec::new());
                };
                Ok(self.read_after(key, *after, count, now)?)
            }
            Wanted::New {
                group,
                consumer,
                keep_pending,
                ..
            } => {
                let plan =
                    self.engine
                        .plan_read_new(key, group, consumer, count, *keep_pending, now)?;
                let entries = self.carry_out(plan)?;
                Ok(entries
                    .into_iter()
                    .map(|entry| (entry.id, Some(entry.fields)))
                    .collect())
            }
        }
    }

    /// Entries of a stream after an id.
    pub(crate) fn read_after(
        &self,
        key: &[u8],
        after: EntryId,
        count: usize,
        now: u64,
    ) -> Result<Vec<ReadOne>, Refusal> {
        Ok(match self.engine.stream(key, now)? {
            None => Vec::new(),
            Some(stream) => stream
                .after(after)
                .take(count)
                .map(|entry| (entry.id, Some(entry.fields.clone())))
                .collect(),
        })
    }
}
