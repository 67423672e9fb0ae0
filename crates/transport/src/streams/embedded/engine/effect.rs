//! What a step does to the store, with everything decided: ids given, times absolute.
//!
//! Commands are planned into effects, effects are logged, and the same function applies them when
//! they happen and when the log is read again. So the two can't come apart.

use bytes::Bytes;
use crossway_core::entry::{EntryId, Fields};

/// One change. Those that name something that doesn't exist do nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A string key takes this value, whatever it held before.
    Put {
        key: Bytes,
        value: Bytes,
        expires_at: Option<u64>,
    },
    /// A key goes.
    Delete { key: Bytes },
    /// A key's expiry is set or taken away.
    Expire { key: Bytes, at: Option<u64> },
    /// Fields of a hash are set; the hash is made where it is missing.
    HashSet {
        key: Bytes,
        fields: Vec<(Bytes, Bytes)>,
    },
    /// Fields of a hash go, and with the last one the hash.
    HashRemove { key: Bytes, fields: Vec<Bytes> },
    /// Members of a set are added; the set is made where it is missing.
    SetAdd { key: Bytes, members: Vec<Bytes> },
    /// Members of a set go, and with the last one the set.
    SetRemove { key: Bytes, members: Vec<Bytes> },
    /// An entry is added; the stream is made where it is missing.
    Append {
        stream: Bytes,
        id: EntryId,
        fields: Fields,
    },
    /// Entries up to and with this one go.
    Trim { stream: Bytes, through: EntryId },
    /// A stream's counters; the stream is made where it is missing.
    StreamState {
        stream: Bytes,
        last_id: EntryId,
        added: u64,
    },
    /// A group's position; the group is made where it is missing.
    GroupSet {
        stream: Bytes,
        group: Bytes,
        last_delivered: EntryId,
        entries_read: Option<u64>,
    },
    /// A group goes, with what is pending in it.
    GroupDestroy { stream: Bytes, group: Bytes },
    /// A consumer of a group comes to be known.
    ConsumerCreate {
        stream: Bytes,
        group: Bytes,
        consumer: Bytes,
    },
    /// A consumer of a group is forgotten, and with it what is still pending for it.
    ConsumerRemove {
        stream: Bytes,
        group: Bytes,
        consumer: Bytes,
    },
    /// Entries are pending for a consumer, each delivered so many times, last at `at`.
    Claim {
        stream: Bytes,
        group: Bytes,
        consumer: Bytes,
        at: u64,
        entries: Vec<(EntryId, u64)>,
    },
    /// Entries are no longer pending.
    Ack {
        stream: Bytes,
        group: Bytes,
        ids: Vec<EntryId>,
    },
}

impl Effect {
    /// The key that is changed.
    pub(crate) fn key(&self) -> &Bytes {
        match self {
            Effect::Put { key, .. }
            | Effect::Delete { key }
            | Effect::Expire { key, .. }
            | Effect::HashSet { key, .. }
            | Effect::HashRemove { key, .. }
            | Effect::SetAdd { key, .. }
            | Effect::SetRemove { key, .. } => key,
            Effect::Append { stream, .. }
            | Effect::Trim { stream, .. }
            | Effect::StreamState { stream, .. }
            | Effect::GroupSet { stream, .. }
            | Effect::GroupDestroy { stream, .. }
            | Effect::ConsumerCreate { stream, .. }
            | Effect::ConsumerRemove { stream, .. }
            | Effect::Claim { stream, .. }
            | Effect::Ack { stream, .. } => stream,
        }
    }
}
