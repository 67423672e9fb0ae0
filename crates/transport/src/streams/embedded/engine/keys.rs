//! String keys, hashes, and expiry.

use std::collections::{BTreeSet, HashSet};

use bytes::Bytes;

use super::{Effect, Engine, Plan, Refusal, Value};

/// Under which condition a string key is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetWhen {
    Always,
    Missing,
    Present,
}

/// How long a string key that is set lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetTtl {
    Forever,
    Keep,
    /// Until this time, ms since the epoch.
    Until(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetOptions {
    pub(crate) when: SetWhen,
    pub(crate) ttl: SetTtl,
    /// The old value is asked for; it must be a string then.
    pub(crate) get: bool,
}

/// Under which condition an expiry is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ExpireWhen {
    pub(crate) missing: bool,
    pub(crate) present: bool,
    pub(crate) greater: bool,
    pub(crate) less: bool,
}

impl Engine {
    /// Sets a string key; answers whether it was set, and the old value.
    pub(crate) fn plan_set(
        &self,
        key: Bytes,
        value: Bytes,
        options: SetOptions,
        now: u64,
    ) -> Result<Plan<(bool, Option<Bytes>)>, Refusal> {
        let old = if options.get {
            self.text(&key, now)?.cloned()
        } else {
            None
        };
        let slot = self.slot(&key, now);
        let held_back = match options.when {
            SetWhen::Always => false,
            SetWhen::Missing => slot.is_some(),
            SetWhen::Present => slot.is_none(),
        };
        if held_back {
            return Ok(Plan::nothing((false, old)));
        }
        let expires_at = match options.ttl {
            SetTtl::Forever => None,
            SetTtl::Keep => slot.and_then(|slot| slot.expires_at),
            SetTtl::Until(at) => Some(at),
        };
        let mut effects = self.begin(&key, now);
        effects.push(Effect::Put {
            key,
            value,
            expires_at,
        });
        Ok(Plan {
            effects,
            answer: (true, old),
        })
    }

    /// Deletes keys; answers how many existed.
    pub(crate) fn plan_delete(&self, keys: Vec<Bytes>, now: u64) -> Plan<i64> {
        let mut seen = HashSet::new();
        let mut count = 0;
        let mut effects = Vec::new();
        for key in keys {
            if seen.contains(&key) || !self.keys.contains_key(&key) {
                continue;
            }
            seen.insert(key.clone());
            count += i64::from(self.slot(&key, now).is_some());
            effects.push(Effect::Delete { key });
        }
        Plan {
            effects,
            answer: count,
        }
    }

    /// Sets the expiry of a key; answers whether it was set.
    pub(crate) fn plan_expire(
        &self,
        key: Bytes,
        at: i64,
        when: ExpireWhen,
        now: u64,
    ) -> Plan<bool> {
        let Some(slot) = self.slot(&key, now) else {
            return Plan::nothing(false);
        };
        let before = slot
            .expires_at
            .map(|at| i64::try_from(at).unwrap_or(i64::MAX));
        let held_back = (when.missing && before.is_some())
            || (when.present && before.is_none())
            || (when.greater && before.is_none_or(|before| at <= before))
            || (when.less && before.is_some_and(|before| at >= before));
        if held_back {
            return Plan::nothing(false);
        }
        let effect = match u64::try_from(at) {
            Ok(at) if at > now => Effect::Expire { key, at: Some(at) },
            _ => Effect::Delete { key },
        };
        Plan {
            effects: vec![effect],
            answer: true,
        }
    }

    /// Milliseconds that a key has left: `None` for no key, `Some(None)` for no expiry.
    pub(crate) fn time_left(&self, key: &[u8], now: u64) -> Option<Option<u64>> {
        self.slot(key, now)
            .map(|slot| slot.expires_at.map(|at| at.saturating_sub(now)))
    }

    /// Sets fields of a hash; answers how many are new.
    pub(crate) fn plan_hash_set(
        &self,
        key: Bytes,
        fields: Vec<(Bytes, Bytes)>,
        now: u64,
    ) -> Result<Plan<i64>, Refusal> {
        let hash = self.hash(&key, now)?;
        let new: BTreeSet<&Bytes> = fields
            .iter()
            .map(|(field, _)| field)
            .filter(|field| hash.is_none_or(|hash| !hash.contains_key(*field)))
            .collect();
        let answer = i64::try_from(new.len()).unwrap_or(i64::MAX);
        let mut effects = self.begin(&key, now);
        effects.push(Effect::HashSet { key, fields });
        Ok(Plan { effects, answer })
    }

    /// Removes fields of a hash; answers how many there were.
    pub(crate) fn plan_hash_remove(
        &self,
        key: Bytes,
        fields: Vec<Bytes>,
        now: u64,
    ) -> Result<Plan<i64>, Refusal> {
        let Some(hash) = self.hash(&key, now)? else {
            return Ok(Plan::nothing(0));
        };
        let present: BTreeSet<Bytes> = fields
            .into_iter()
            .filter(|field| hash.contains_key(field))
            .collect();
        if present.is_empty() {
            return Ok(Plan::nothing(0));
        }
        let answer = i64::try_from(present.len()).unwrap_or(i64::MAX);
        Ok(Plan {
            effects: vec![Effect::HashRemove {
                key,
                fields: present.into_iter().collect(),
            }],
            answer,
        })
    }

    /// Whether field `field` of the hash `key` has this value.
    pub(crate) fn hash_field_is(&self, key: &[u8], field: &[u8], value: &[u8], now: u64) -> bool {
        matches!(self.value(key, now), Some(Value::Hash(hash)) if hash.get(field).is_some_and(|held| held == value))
    }
}
