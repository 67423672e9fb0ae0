//! The `Streams` port: what a relay needs of a stream store, and nothing else.
//!
//! Reading, handing over and acknowledging is the hot path and has a session of its own
//! ([`GroupReader`]): it reads many streams at once as the one consumer of a group, and settles
//! what it read in single atomic steps. Everything else is cold and goes through [`Streams`].
//!
//! Three adapters stand behind it, [`embedded`], [`valkey`] and [`cluster`]; all pass the contract test in
//! `tests/it/contract`.

pub mod cluster;
pub mod embedded;
pub mod valkey;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use crossway_core::entry::{Entry, EntryId, Fields};

/// The name of a key on the store.
pub type Key = Arc<str>;

/// What went wrong between us and the store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The store couldn't be reached, or the connection broke before the answer came. Whether a
    /// write happened is not known.
    #[error(
        "the store at {at} can't be reached: {reason}; check that it runs and that the URL is right"
    )]
    Unreachable {
        /// Where the store was looked for, without any secret.
        at: String,
        /// What the system said.
        reason: String,
    },
    /// The store answered with an error; the text begins with its prefix (`WRONGTYPE`, `NOPERM`, `OOM`, …).
    #[error("the store refused {command} on {key}: {reason}")]
    Refused {
        /// The command that was refused.
        command: &'static str,
        /// The key it was about, empty where there is none.
        key: String,
        /// The store's own words.
        reason: String,
    },
    /// The store answered something that the protocol doesn't allow here.
    #[error("the store at {at} sent an answer that can't be read: {reason}")]
    Protocol {
        /// Where the store is, without any secret.
        at: String,
        /// What was wrong with it.
        reason: String,
    },
    /// The membership that the writes were made under is gone: another daemon has taken over.
    /// Nothing was written.
    #[error("this daemon's membership was taken over while it was away; its writes were refused")]
    Fenced,
    /// The file behind the embedded store couldn't be written or read.
    #[error("{path}: {reason}")]
    Disk {
        /// The file or folder.
        path: String,
        /// What the system said.
        reason: String,
    },
}

impl StoreError {
    /// Whether the same call may succeed later without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            StoreError::Unreachable { .. } => true,
            StoreError::Refused { reason, .. } => is_transient(reason),
            StoreError::Protocol { .. } | StoreError::Fenced | StoreError::Disk { .. } => false,
        }
    }
}

/// Whether a refusal, in the store's words, says that the same may be taken later.
#[must_use]
pub fn is_transient(reason: &str) -> bool {
    const PASSING: [&str; 9] = [
        "LOADING",
        "BUSY",
        "MASTERDOWN",
        "READONLY",
        "TRYAGAIN",
        "CLUSTERDOWN",
        "OOM",
        "MISCONF",
        "NOREPLICAS",
    ];
    PASSING
        .iter()
        .any(|prefix| reason.split([' ', ':']).next() == Some(prefix))
}

/// An entry to be added to a stream.
#[derive(Debug, Clone)]
pub struct Append {
    /// The stream, made if it doesn't exist.
    pub stream: Key,
    /// The fields, not empty.
    pub fields: Fields,
}

/// A string key to be written.
#[derive(Debug, Clone)]
pub struct Put {
    /// The key.
    pub key: Key,
    /// Its value.
    pub value: Bytes,
    /// How long it lives.
    pub ttl: Duration,
}

/// All that happens to one entry that was read. Either all of it happens, or nothing.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// The stream the entry was read from.
    pub stream: Key,
    /// The entry; it is taken off the group's pending list.
    pub entry: EntryId,
    /// A string key that must exist, and is deleted.
    pub consume: Option<Key>,
    /// What is added to streams, in order.
    pub appends: Vec<Append>,
    /// What is written to string keys.
    pub puts: Vec<Put>,
}

impl Settlement {
    /// Takes the entry off the pending list and does nothing else.
    #[must_use]
    pub fn acknowledge(stream: Key, entry: EntryId) -> Settlement {
        Settlement {
            stream,
            entry,
            consume: None,
            appends: Vec::new(),
            puts: Vec::new(),
        }
    }

    /// Whether there is nothing to it but the acknowledgement.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.consume.is_none() && self.appends.is_empty() && self.puts.is_empty()
    }
}

/// What became of one [`Settlement`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// All of it happened.
    Done,
    /// The entry was no longer pending: it had been settled already. Nothing happened. One that
    /// is only acknowledged may pass for done then, where there are others beside it.
    NotPending,
    /// The key to be consumed didn't exist. Nothing happened; the entry is still pending.
    Unmet,
    /// The store refused one of the writes, in its own words (`WRONGTYPE …`). Nothing happened;
    /// the entry is still pending.
    Failed(String),
}

/// The condition under which settlements are written: field `field` of hash `key` is `value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The hash that holds the members.
    pub key: Key,
    /// The member's field.
    pub field: String,
    /// The value it must have.
    pub value: String,
}

/// An entry that the reader was given, with the stream it stood in.
#[derive(Debug, Clone)]
pub struct Read {
    /// The stream.
    pub stream: Key,
    /// The entry, or what is known of one that couldn't be taken in.
    pub entry: ReadEntry,
}

/// An entry, or why it isn't here.
#[derive(Debug, Clone)]
pub enum ReadEntry {
    /// The whole entry.
    Whole(Entry),
    /// The entry is over the reader's limits. It was not kept in memory; it is still in its
    /// stream and pending.
    Oversize {
        /// Its id.
        id: EntryId,
        /// Bytes of all its names and values.
        bytes: u64,
        /// The number of its fields.
        fields: u64,
        /// The fields that fitted within the limits, each of them whole, in order.
        head: Fields,
    },
    /// It was pending, but has been deleted from the stream.
    Gone(EntryId),
}

/// What one read gave.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// The entries, in the order of their stream.
    pub entries: Vec<Read>,
    /// One of the watched keys has changed since the read before. Every entry in a later batch
    /// was possibly written after the change; entries in this one too.
    pub changed: bool,
    /// Streams whose group had vanished and was made again from their beginning: history may be
    /// lost (a flush, or a restart without persistence).
    pub remade: Vec<Key>,
    /// Streams left out because the key holds something that isn't a stream.
    pub not_streams: Vec<Key>,
}

/// How a [`GroupReader`] reads.
#[derive(Debug, Clone)]
pub struct ReaderOptions {
    /// The consumer group; made from the stream's beginning where it is missing.
    pub group: Arc<str>,
    /// The consumer. Exactly one reader at a time uses it for a stream.
    pub consumer: Arc<str>,
    /// The most entries taken from one stream in one read.
    pub count: usize,
    /// How long a read waits for something to arrive.
    pub block: Duration,
    /// An entry whose names and values are more than this many bytes is [`ReadEntry::Oversize`].
    pub max_entry_bytes: usize,
    /// An entry with more fields than this is [`ReadEntry::Oversize`].
    pub max_fields: usize,
    /// Keys whose change is reported in [`Batch::changed`], in order with the entries.
    pub watched: Vec<Key>,
}

/// Reads streams as a group's only consumer, and settles what it read.
///
/// After [`GroupReader::assign`], for each stream that is new to it and after every broken
/// connection, a reader first gives what is already pending for its consumer, oldest first, then
/// what is new. So whatever a reader that died had read, the next one gives again, in order.
#[async_trait]
pub trait GroupReader: Send {
    /// Replaces the set of streams; takes effect with the next read. Streams that stay keep
    /// their place.
    fn assign(&mut self, streams: Vec<Key>);

    /// Allows reads to be begun until a moment. After it nothing is asked of the store any more,
    /// until more time is allowed: somebody else may be reading these streams by then.
    fn allow(&mut self, until: Instant);

    /// Waits for entries, at most `block`; an empty batch is an ordinary answer.
    ///
    /// # Errors
    /// [`StoreError`]; the reader reconnects with the next call and gives again what is pending.
    async fn read(&mut self) -> Result<Batch, StoreError>;

    /// Gives pending entries again with the next read, as after a broken connection. Nothing
    /// that was read may be left unsettled when this is called, or it is given twice.
    fn rewind(&mut self);

    /// Sends settlements on their way, to be carried out in order, each atomically, under one
    /// fence. [`GroupReader::outcome`] tells what became of them; until it has, more may be read
    /// and submitted, but nothing rewound.
    ///
    /// # Errors
    /// As [`GroupReader::outcome`].
    async fn submit(
        &mut self,
        fence: &Fence,
        settlements: Vec<Settlement>,
    ) -> Result<(), StoreError>;

    /// What became of the oldest submission that wasn't asked about yet: one [`Settled`] for each
    /// of its settlements. `None` when there is none.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when the fence doesn't hold. On [`StoreError::Unreachable`] it isn't
    /// known what was written; the reader rewinds by itself, and gives again exactly what was not.
    /// After any error nothing submitted is outstanding any more.
    async fn outcome(&mut self) -> Result<Option<Vec<Settled>>, StoreError>;

    /// Submits settlements and waits for what becomes of them. Nothing else may be outstanding.
    ///
    /// # Errors
    /// As [`GroupReader::outcome`].
    async fn settle(
        &mut self,
        fence: &Fence,
        settlements: Vec<Settlement>,
    ) -> Result<Vec<Settled>, StoreError> {
        self.submit(fence, settlements).await?;
        Ok(self.outcome().await?.unwrap_or_default())
    }

    /// A handle that ends a waiting read early, so that an assignment can take effect.
    fn interrupter(&self) -> Box<dyn Interrupt>;
}

/// Ends a waiting read early.
#[async_trait]
pub trait Interrupt: Send + Sync {
    /// Makes the read that waits now, if any, return what it has.
    async fn interrupt(&self);
}

/// What an optimistic change of a hash writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashChange {
    /// Field and value to set.
    Set(String, String),
    /// Field to remove.
    Remove(String),
}

/// What [`Streams::trim_acknowledged`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trimmed {
    /// Entries that were taken away.
    pub removed: u64,
    /// Entries that are still there beyond those to be kept.
    pub beyond: u64,
    /// The group that has acknowledged the least, or that should be there and isn't; empty where
    /// nothing was beyond.
    pub slowest: String,
}

/// How the store is doing, for readiness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It answers.
    Up,
    /// It doesn't, and why.
    Down(String),
}

/// A stream store.
#[async_trait]
pub trait Streams: Send + Sync + 'static {
    /// Opens a reader. It connects with its first read.
    fn reader(&self, options: ReaderOptions) -> Box<dyn GroupReader>;

    /// Whether a settlement happens as a whole whatever keys it names. Where it doesn't, one that
    /// is broken off leaves the entry pending, and some of what it writes may have been written: all
    /// of it is written again when the entry is settled anew.
    fn is_atomic(&self) -> bool {
        true
    }

    /// Adds an entry to a stream and gives its id.
    async fn append(&self, stream: &str, fields: Fields) -> Result<EntryId, StoreError>;

    /// Entries of a stream from `from` on, at most `count`.
    async fn range(
        &self,
        stream: &str,
        from: EntryId,
        count: usize,
    ) -> Result<Vec<Entry>, StoreError>;

    /// All fields of a hash; values that aren't UTF-8 are given with replacement characters.
    async fn hash_all(&self, key: &str) -> Result<HashMap<String, String>, StoreError>;

    /// One field of a hash.
    async fn hash_get(&self, key: &str, field: &str) -> Result<Option<String>, StoreError>;

    /// Changes a hash by a decision made on all of it: `decide` sees the hash and says what to
    /// write; if the hash was changed meanwhile it is asked again. It gives what was written,
    /// nothing where `decide` wants nothing.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Refused`] when the hash kept changing for a hundred attempts.
    async fn hash_update(
        &self,
        key: &str,
        decide: &mut (dyn for<'a> FnMut(&'a HashMap<String, String>) -> Vec<HashChange> + Send),
    ) -> Result<Vec<HashChange>, StoreError>;

    /// Sets a field of a hash only where it doesn't exist; tells whether it was set.
    async fn hash_add(&self, key: &str, field: &str, value: &str) -> Result<bool, StoreError>;

    /// Sets a field of a hash.
    async fn hash_set(&self, key: &str, field: &str, value: &str) -> Result<(), StoreError>;

    /// Removes a field of a hash; tells whether it was there.
    async fn hash_remove(&self, key: &str, field: &str) -> Result<bool, StoreError>;

    /// The values of string keys, in order.
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError>;

    /// Which of these keys exist.
    async fn exist(&self, keys: &[Key]) -> Result<Vec<bool>, StoreError>;

    /// Shortens a stream to about its newest `keep` entries, whoever has or hasn't read them; one
    /// that doesn't exist is left alone.
    async fn trim(&self, stream: &str, keep: u64) -> Result<(), StoreError>;

    /// Takes at most about `most` of the oldest entries beyond the newest `keep` off a stream, but
    /// none that a group hasn't acknowledged: nothing from its oldest pending entry on, nor from
    /// the one it was given last. Where `group` isn't there nothing goes. One atomic step.
    async fn trim_acknowledged(
        &self,
        stream: &str,
        group: &str,
        keep: u64,
        most: u64,
    ) -> Result<Trimmed, StoreError>;

    /// Makes a consumer group that begins with a stream's first entry, and the stream where it is
    /// missing; tells whether the group is new.
    async fn make_group(&self, stream: &str, group: &str) -> Result<bool, StoreError>;

    /// Deletes a key; tells whether it was there.
    async fn delete(&self, key: &str) -> Result<bool, StoreError>;

    /// Deletes a stream that nobody has written to, read or asked for entries for `idle`. Looking
    /// and deleting are one atomic step. Gives `None` where the stream is gone, else for how long
    /// it hasn't been used. A wait counts from its beginning, where the store doesn't know who waits.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Refused`] by a store that doesn't keep track of use.
    async fn delete_idle(
        &self,
        stream: &str,
        idle: Duration,
    ) -> Result<Option<Duration>, StoreError>;

    /// The members of a set; those that aren't UTF-8 are left out.
    async fn set_members(&self, key: &str) -> Result<Vec<String>, StoreError>;

    /// Adds a member to a set; tells whether it is new.
    async fn set_add(&self, key: &str, member: &str) -> Result<bool, StoreError>;

    /// Removes a member of a set; tells whether it was there.
    async fn set_remove(&self, key: &str, member: &str) -> Result<bool, StoreError>;

    /// Gives a user of the store these access rules, in the store's own words; one that doesn't
    /// exist isn't made. Tells whether it exists. A store without users has none.
    async fn set_access(&self, _user: &str, _rules: &[String]) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Names of streams that match a glob pattern (`*` any run, `?` any one byte).
    async fn scan(&self, pattern: &str) -> Result<Vec<String>, StoreError>;

    /// Names of streams as they come into being, where the store can tell. A listener that lags
    /// behind is told so by the channel and should [`Streams::scan`].
    fn created(&self) -> Option<tokio::sync::broadcast::Receiver<Key>>;

    /// Asks the store for a sign of life, for at most a second.
    async fn health(&self) -> Health;
}

/// A pattern of the port as the glob of a store, to which brackets and backslashes mean more.
pub(crate) fn glob(pattern: &str) -> String {
    pattern.replace('\\', "\\\\").replace('[', "\\[")
}
