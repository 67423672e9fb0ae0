//! One entry of a stream: its id and its fields, as they lay on the store.
//!
//! Values are bytes that share the buffer they were read into. Order is kept and so are repeated
//! names, because an entry that is only passed on must leave as it came.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

/// The id of an entry in its stream: milliseconds and a sequence number, as the store gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Milliseconds since the epoch, by the store's clock.
    pub ms: u64,
    /// Tells apart entries of one millisecond.
    pub seq: u64,
}

impl EntryId {
    /// The smallest id; nothing is ever stored under it.
    pub const ZERO: EntryId = EntryId { ms: 0, seq: 0 };
    /// The largest id.
    pub const MAX: EntryId = EntryId {
        ms: u64::MAX,
        seq: u64::MAX,
    };

    /// An id from its two halves.
    #[must_use]
    pub const fn new(ms: u64, seq: u64) -> EntryId {
        EntryId { ms, seq }
    }

    /// The id that follows this one, or `None` after the largest.
    #[must_use]
    pub fn next(self) -> Option<EntryId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(EntryId { ms: self.ms, seq }),
            None => self.ms.checked_add(1).map(|ms| EntryId { ms, seq: 0 }),
        }
    }

    /// The id before this one, or `None` before the smallest.
    #[must_use]
    pub fn previous(self) -> Option<EntryId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(EntryId { ms: self.ms, seq }),
            None => self
                .ms
                .checked_sub(1)
                .map(|ms| EntryId { ms, seq: u64::MAX }),
        }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// The text isn't `MILLISECONDS-SEQUENCE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an entry id is MILLISECONDS-SEQUENCE, two whole numbers")]
pub struct EntryIdError;

impl FromStr for EntryId {
    type Err = EntryIdError;

    fn from_str(text: &str) -> Result<EntryId, EntryIdError> {
        let (ms, seq) = text.split_once('-').ok_or(EntryIdError)?;
        Ok(EntryId {
            ms: digits(ms)?,
            seq: digits(seq)?,
        })
    }
}

fn digits(text: &str) -> Result<u64, EntryIdError> {
    // `u64::from_str` takes a leading plus sign, which no store writes.
    if text.starts_with('+') {
        return Err(EntryIdError);
    }
    text.parse().map_err(|_| EntryIdError)
}

/// The fields of an entry: name and value, in order, names possibly repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(Vec<(Bytes, Bytes)>);

impl Fields {
    /// No fields yet, with room for `capacity`.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Fields {
        Fields(Vec::with_capacity(capacity))
    }

    /// Adds a field at the end.
    pub fn push(&mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.0.push((name.into(), value.into()));
    }

    /// The value of the first field with this name.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&Bytes> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    }

    /// The number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of all names and values together.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum()
    }

    /// The fields in order.
    pub fn iter(&self) -> std::slice::Iter<'_, (Bytes, Bytes)> {
        self.0.iter()
    }
}

impl From<Vec<(Bytes, Bytes)>> for Fields {
    fn from(fields: Vec<(Bytes, Bytes)>) -> Fields {
        Fields(fields)
    }
}

impl<'a> IntoIterator for &'a Fields {
    type Item = &'a (Bytes, Bytes);
    type IntoIter = std::slice::Iter<'a, (Bytes, Bytes)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl IntoIterator for Fields {
    type Item = (Bytes, Bytes);
    type IntoIter = std::vec::IntoIter<(Bytes, Bytes)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<N: Into<Bytes>, V: Into<Bytes>> FromIterator<(N, V)> for Fields {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(iter: I) -> Fields {
        Fields(
            iter.into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

/// An entry as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id in the stream it was read from.
    pub id: EntryId,
    /// Its fields.
    pub fields: Fields,
}
