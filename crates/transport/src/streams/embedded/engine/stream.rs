//! One stream: entries in the order of their ids, and the groups that read it.
//!
//! Entries leave only at the front, so a double-ended queue holds them and a binary search finds them.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use crossway_core::entry::{Entry, EntryId, Fields};

use super::group::Group;
use super::refusal::Refusal;

/// How many entries an approximate trim takes away at a time.
const TRIM_BLOCK: usize = 100;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stream {
    entries: VecDeque<Entry>,
    /// The largest id ever given; an id is never given again, whatever the clock does.
    pub(crate) last_id: EntryId,
    /// How many entries were ever added.
    pub(crate) added: u64,
    pub(crate) groups: BTreeMap<Bytes, Group>,
}

/// The id that a new entry shall have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewId {
    /// From the clock.
    Auto,
    /// These milliseconds, the next free sequence number.
    Millis(u64),
    /// Exactly this one.
    Exact(EntryId),
}

/// Which entries a trim takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trim {
    pub(crate) keep: Keep,
    /// Only whole blocks of entries, at most this many entries (0: no limit); `None` for an exact trim.
    pub(crate) approximate: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The newest so many.
    Newest(u64),
    /// Those from this id on.
    From(EntryId),
}

impl Stream {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn first(&self) -> Option<&Entry> {
        self.entries.front()
    }

    pub(crate) fn last(&self) -> Option<&Entry> {
        self.entries.back()
    }

    pub(crate) fn get(&self, id: EntryId) -> Option<&Entry> {
        let at = self
            .entries
            .binary_search_by_key(&id, |entry| entry.id)
            .ok()?;
        self.entries.get(at)
    }

    /// Entries from `from` to `to`, both included.
    pub(crate) fn range(
        &self,
        from: EntryId,
        to: EntryId,
    ) -> impl DoubleEndedIterator<Item = &Entry> {
        let start = self.entries.partition_point(|entry| entry.id < from);
        let end = self
            .entries
            .partition_point(|entry| entry.id <= to)
            .max(start);
        self.entries.range(start..end)
    }

    /// Entries after `id`.
    pub(crate) fn after(&self, id: EntryId) -> impl Iterator<Item = &Entry> {
        let start = self.entries.partition_point(|entry| entry.id <= id);
        self.entries.range(start..)
    }

    /// How many entries were added up to `id`, where that can be told.
    pub(crate) fn read_up_to(&self, id: EntryId) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        let gone = self.added.saturating_sub(self.entries.len() as u64);
        let Some(first) = self.entries.front() else {
            return (id <= self.last_id).then_some(self.added);
        };
        if id == self.last_id {
            Some(self.added)
        } else if id > self.last_id {
            None
        } else if id < first.id {
            Some(gone)
        } else if id == first.id {
            Some(gone.saturating_add(1))
        } else {
            None
        }
    }

    pub(crate) fn push(&mut self, id: EntryId, fields: &Fields) {
        if id > self.last_id {
            self.entries.push_back(Entry {
                id,
                fields: compact(fields),
            });
            self.last_id = id;
            self.added = self.added.saturating_add(1);
        }
    }

    pub(crate) fn trim_through(&mut self, id: EntryId) {
        let gone = self.entries.partition_point(|entry| entry.id <= id);
        self.entries.drain(..gone);
    }

    /// The last entry that goes, were `extra` entries (the newest of them `newest`) added before,
    /// and how many go.
    pub(crate) fn plan_trim(&self, trim: Trim, extra: Option<EntryId>) -> Option<(EntryId, usize)> {
        let total = self
            .entries
            .len()
            .saturating_add(usize::from(extra.is_some()));
        let surplus = match trim.keep {
            Keep::Newest(most) => total.saturating_sub(usize::try_from(most).unwrap_or(usize::MAX)),
            Keep::From(id) => {
                let here = self.entries.partition_point(|entry| entry.id < id);
                here.saturating_add(usize::from(extra.is_some_and(|extra| extra < id)))
            }
        };
        let gone = match trim.approximate {
            None => surplus,
            Some(limit) => {
                let limit = if limit == 0 { usize::MAX } else { limit };
                let most = surplus.min(limit);
                most - most % TRIM_BLOCK
            }
        };
        let at = gone.checked_sub(1)?;
        let through = self.entries.get(at).map(|entry| entry.id).or(extra)?;
        Some((through, gone))
    }

    /// Takes up the counters of a stream.
    pub(crate) fn set_state(&mut self, last_id: EntryId, added: u64) {
        self.last_id = self.last_id.max(last_id);
        self.added = self.added.max(added);
    }
}

/// The id of the next entry after `last`.
pub(crate) fn next_id(wanted: NewId, last: EntryId, now: u64) -> Result<EntryId, Refusal> {
    match wanted {
        NewId::Auto => {
            if now > last.ms {
                Ok(EntryId::new(now, 0))
            } else {
                last.next().ok_or(Refusal::EXHAUSTED)
            }
        }
        NewId::Millis(ms) if ms == last.ms => match last.seq.checked_add(1) {
            Some(seq) => Ok(EntryId::new(ms, seq)),
            None => Err(Refusal::ID_TOO_SMALL),
        },
        NewId::Millis(ms) if ms > last.ms => Ok(EntryId::new(ms, 0)),
        NewId::Millis(_) => Err(Refusal::ID_TOO_SMALL),
        NewId::Exact(EntryId::ZERO) => Err(Refusal::ID_ZERO),
        NewId::Exact(id) if id > last => Ok(id),
        NewId::Exact(_) => Err(Refusal::ID_TOO_SMALL),
    }
}

/// The same fields in one buffer of their own, so that an entry holds on to nothing else.
fn compact(fields: &Fields) -> Fields {
    let mut buffer = BytesMut::with_capacity(fields.size());
    for (name, value) in fields {
        buffer.extend_from_slice(name);
        buffer.extend_from_slice(value);
    }
    let mut rest = buffer.freeze();
    fields
        .iter()
        .map(|(name, value)| (rest.split_to(name.len()), rest.split_to(value.len())))
        .collect()
}
