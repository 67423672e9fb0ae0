//! The store's data and its rules: pure, without a file, a socket or a clock.
//!
//! A command is planned against the data as it is (`plan_…`, which change nothing) into
//! [`Effect`]s, and [`Engine::apply`] carries effects out. Times are milliseconds since the epoch
//! and come in as arguments. A key that has expired is absent to every plan, whether or not it
//! has been removed yet.

mod apply;
mod effect;
pub(crate) mod glob;
mod group;
mod idle;
mod keys;
mod pending;
mod read;
mod refusal;
mod scan;
mod sets;
mod settle;
mod snapshot;
mod stream;
mod trim;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;

pub(crate) use effect::Effect;
pub(crate) use group::Group;
pub(crate) use keys::{ExpireWhen, SetOptions, SetTtl, SetWhen};
pub(crate) use pending::{Claimed, PendingQuery, PendingSummary};
pub(crate) use read::ReadOne;
pub(crate) use refusal::Refusal;
pub(crate) use stream::{Keep, NewId, Stream, Trim};
pub(crate) use write::AddOptions;

/// What is to be done, and what to answer once it is.
pub(crate) struct Plan<T> {
    pub(crate) effects: Vec<Effect>,
    pub(crate) answer: T,
}

impl<T> Plan<T> {
    fn nothing(answer: T) -> Plan<T> {
        Plan {
            effects: Vec::new(),
            answer,
        }
    }
}

/// What a key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    Set(BTreeSet<Bytes>),
    Stream(Box<Stream>),
}

impl Value {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "string",
            Value::Hash(_) => "hash",
            Value::Set(_) => "set",
            Value::Stream(_) => "stream",
        }
    }
}

#[derive(Debug, Clone)]
struct Slot {
    value: Value,
    /// When it expires, ms since the epoch.
    expires_at: Option<u64>,
    /// When it was used last, where that is known; it isn't kept across restarts.
    used_at: Option<u64>,
    /// Which key this was to be made; a scan goes by it, so it stays for as long as the key does.
    number: u64,
}

/// All keys.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    keys: HashMap<Bytes, Slot>,
    by_number: BTreeMap<u64, Bytes>,
    expiries: BTreeSet<(u64, u64)>,
    last_number: u64,
}

impl Engine {
    fn slot(&self, key: &[u8], now: u64) -> Option<&Slot> {
        self.keys
            .get(key)
            .filter(|slot| slot.expires_at.is_none_or(|at| at > now))
    }

    /// What a key holds.
    pub(crate) fn value(&self, key: &[u8], now: u64) -> Option<&Value> {
        self.slot(key, now).map(|slot| &slot.value)
    }

    /// The stream at a key, if there is one.
    pub(crate) fn stream(&self, key: &[u8], now: u64) -> Result<Option<&Stream>, Refusal> {
        match self.value(key, now) {
            None => Ok(None),
            Some(Value::Stream(stream)) => Ok(Some(stream)),
            Some(_) => Err(Refusal::WRONG_TYPE),
        }
    }

    /// The hash at a key, if there is one.
    pub(crate) fn hash(
        &self,
        key: &[u8],
        now: u64,
    ) -> Result<Option<&BTreeMap<Bytes, Bytes>>, Refusal> {
        match self.value(key, now) {
            None => Ok(None),
            Some(Value::Hash(fields)) => Ok(Some(fields)),
            Some(_) => Err(Refusal::WRONG_TYPE),
        }
    }

    /// The string at a key, if there is one.
    pub(crate) fn text(&self, key: &[u8], now: u64) -> Result<Option<&Bytes>, Refusal> {
        match self.value(key, now) {
            None => Ok(None),
            Some(Value::Text(value)) => Ok(Some(value)),
            Some(_) => Err(Refusal::WRONG_TYPE),
        }
    }

    /// The set at a key, if there is one.
    pub(crate) fn set(&self, key: &[u8], now: u64) -> Result<Option<&BTreeSet<Bytes>>, Refusal> {
        match self.value(key, now) {
            None => Ok(None),
            Some(Value::Set(members)) => Ok(Some(members)),
            Some(_) => Err(Refusal::WRONG_TYPE),
        }
    }

    /// How many keys there are, expired ones that haven't been removed included.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// How many keys expire some day.
    pub(crate) fn expiring(&self) -> usize {
        self.expiries.len()
    }

    /// Begins the effects of a write to `key`: what is left there of an expired value goes first.
    fn begin(&self, key: &Bytes, now: u64) -> Vec<Effect> {
        if self.keys.contains_key(key) && self.slot(key, now).is_none() {
            vec![Effect::Delete { key: key.clone() }]
        } else {
            Vec::new()
        }
    }
}
