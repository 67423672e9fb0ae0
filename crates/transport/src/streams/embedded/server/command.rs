//! What a client can ask for, once its arguments have been understood.

use bytes::Bytes;
use crossway_core::entry::{EntryId, Fields};

use crate::streams::embedded::engine::{AddOptions, ExpireWhen, PendingQuery, SetWhen, Trim};

/// How long a string key that is set lives, as the client put it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ttl {
    Forever,
    Keep,
    /// Milliseconds from now.
    For(u64),
    /// Milliseconds since the epoch.
    Until(u64),
}

/// Where a read begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum From {
    /// After this id.
    After(EntryId),
    /// After what is there now.
    End,
    /// With what the group hasn't read.
    New,
}

/// A read of one or many streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    /// Group and consumer.
    pub(super) member: Option<(Bytes, Bytes)>,
    pub(super) streams: Vec<(Bytes, From)>,
    pub(super) count: usize,
    /// How long to wait, ms; 0 is for ever.
    pub(super) block: Option<u64>,
    pub(super) keep_pending: bool,
}

/// A command on the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    Get(Bytes),
    Set {
        key: Bytes,
        value: Bytes,
        when: SetWhen,
        ttl: Ttl,
        get: bool,
    },
    Delete(Vec<Bytes>),
    Exists(Vec<Bytes>),
    Type(Bytes),
    Expire {
        key: Bytes,
        seconds: i64,
        when: ExpireWhen,
    },
    Ttl(Bytes),
    Scan {
        cursor: u64,
        count: usize,
        pattern: Option<Bytes>,
        kind: Option<String>,
    },
    HashSet {
        key: Bytes,
        fields: Vec<(Bytes, Bytes)>,
    },
    HashGet {
        key: Bytes,
        field: Bytes,
    },
    HashAll(Bytes),
    HashDelete {
        key: Bytes,
        fields: Vec<Bytes>,
    },
    Add {
        key: Bytes,
        fields: Fields,
        options: AddOptions,
    },
    Len(Bytes),
    Range {
        key: Bytes,
        from: EntryId,
        to: EntryId,
        count: Option<usize>,
        reverse: bool,
    },
    Trim {
        key: Bytes,
        trim: Trim,
    },
    Read(Reading),
    GroupCreate {
        key: Bytes,
        group: Bytes,
        from: Option<EntryId>,
        entries_read: Option<u64>,
        make: bool,
    },
    GroupDestroy {
        key: Bytes,
        group: Bytes,
    },
    /// Ids are read only where there is a group, as clients are used to.
    Acknowledge {
        key: Bytes,
        group: Bytes,
        ids: Vec<Bytes>,
    },
    PendingSummary {
        key: Bytes,
        group: Bytes,
    },
    Pending {
        key: Bytes,
        group: Bytes,
        query: PendingQuery,
    },
    AutoClaim {
        key: Bytes,
        group: Bytes,
        consumer: Bytes,
        min_idle: u64,
        from: EntryId,
        count: usize,
        ids_only: bool,
    },
    StreamInfo {
        key: Bytes,
        /// With at most so many entries of each list.
        full: Option<usize>,
    },
    GroupsInfo(Bytes),
}

impl Command {
    /// The streams that it uses, by reading or writing them.
    pub(super) fn streams(&self) -> Vec<Bytes> {
        match self {
            Command::Read(reading) => reading.streams.iter().map(|(key, _)| key.clone()).collect(),
            Command::Add { key, .. }
            | Command::Len(key)
            | Command::Range { key, .. }
            | Command::Trim { key, .. }
            | Command::GroupCreate { key, .. }
            | Command::GroupDestroy { key, .. }
            | Command::Acknowledge { key, .. }
            | Command::PendingSummary { key, .. }
            | Command::Pending { key, .. }
            | Command::AutoClaim { key, .. }
            | Command::StreamInfo { key, .. }
            | Command::GroupsInfo(key) => vec![key.clone()],
            _ => Vec::new(),
        }
    }
}
