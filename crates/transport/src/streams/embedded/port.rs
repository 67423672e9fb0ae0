//! The [`Streams`] port, on the state within the process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use crossway_core::entry::{Entry, EntryId, Fields};
use tokio::sync::broadcast;

use super::blocked::Fault;
use super::engine::{AddOptions, Keep, Plan, Refusal, Trim};
use super::reader::Reader;
use super::{Embedded, State};
use crate::streams::{
    GroupReader, HashChange, Health, Key, ReaderOptions, StoreError, Streams, Trimmed, glob,
};

impl Embedded {
    /// Runs something on the state and waits until the outcome may be told.
    async fn call<T>(
        &self,
        command: &'static str,
        key: &str,
        work: impl FnOnce(&mut State, u64) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let (result, position) = self.store.run(work);
        let result = result.map_err(|fault| match fault {
            Fault::Refused(Refusal(reason)) => StoreError::Refused {
                command,
                key: key.to_owned(),
                reason: reason.into_owned(),
            },
            Fault::Store(error) => error,
        })?;
        self.store.durable(position).await?;
        Ok(result)
    }
}

fn owned(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[async_trait]
impl Streams for Embedded {
    fn reader(&self, options: ReaderOptions) -> Box<dyn GroupReader> {
        Box::new(Reader::new(Arc::clone(&self.store), options))
    }

    async fn append(&self, stream: &str, fields: Fields) -> Result<EntryId, StoreError> {
        self.call("XADD", stream, |state, now| {
            if fields.is_empty() {
                return Err(Refusal::of("ERR wrong number of arguments for 'xadd' command").into());
            }
            let plan = state
                .engine
                .plan_add(owned(stream), fields, AddOptions::PLAIN, now)?;
            // A stream that is made where it is missing always takes the entry.
            Ok(state.carry_out(plan)?.unwrap_or(EntryId::ZERO))
        })
        .await
    }

    async fn range(
        &self,
        stream: &str,
        from: EntryId,
        count: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        self.call("XRANGE", stream, |state, now| {
            let held = state.engine.stream(stream.as_bytes(), now)?;
            Ok(held.map_or_else(Vec::new, |held| {
                held.range(from, EntryId::MAX)
                    .take(count)
                    .cloned()
                    .collect()
            }))
        })
        .await
    }

    async fn hash_all(&self, key: &str) -> Result<HashMap<String, String>, StoreError> {
        self.call("HGETALL", key, |state, now| {
            Ok(whole_hash(state, key, now)?)
        })
        .await
    }

    async fn hash_get(&self, key: &str, field: &str) -> Result<Option<String>, StoreError> {
        self.call("HGET", key, |state, now| {
            Ok(state
                .engine
                .hash(key.as_bytes(), now)?
                .and_then(|hash| hash.get(field.as_bytes()))
                .map(text))
        })
        .await
    }

    async fn hash_update(
        &self,
        key: &str,
        decide: &mut (dyn for<'a> FnMut(&'a HashMap<String, String>) -> Vec<HashChange> + Send),
    ) -> Result<Vec<HashChange>, StoreError> {
        self.call("HSET", key, |state, now| {
            let changes = decide(&whole_hash(state, key, now)?);
            let mut plan = Plan {
                effects: Vec::new(),
                answer: (),
            };
            let mut set = Vec::new();
            let mut removed = Vec::new();
            for change in &changes {
                match change {
                    HashChange::Set(field, value) => {
                        removed.retain(|other: &Bytes| other != field.as_bytes());
                        set.push((owned(field), owned(value)));
                    }
                    HashChange::Remove(field) => {
                        set.retain(|(other, _): &(Bytes, Bytes)| other != field.as_bytes());
                        removed.push(owned(field));
                    }
                }
            }
            // What is set comes first: a hash that loses its last field would be gone before it.
            if !set.is_empty() {
                plan.effects
                    .extend(state.engine.plan_hash_set(owned(key), set, now)?.effects);
            }
            plan.effects.extend(
                state
                    .engine
                    .plan_hash_remove(owned(key), removed, now)?
                    .effects,
            );
            state.carry_out(plan)?;
            Ok(changes)
        })
        .await
    }

    async fn hash_add(&self, key: &str, field: &str, value: &str) -> Result<bool, StoreError> {
        self.call("HSETNX", key, |state, now| {
            if state
                .engine
                .hash(key.as_bytes(), now)?
                .is_some_and(|hash| hash.contains_key(field.as_bytes()))
            {
                return Ok(false);
            }
            let plan =
                state
                    .engine
                    .plan_hash_set(owned(key), vec![(owned(field), owned(value))], now)?;
            state.carry_out(plan)?;
            Ok(true)
        })
        .await
    }

    async fn hash_set(&self, key: &str, field: &str, value: &str) -> Result<(), StoreError> {
        self.call("HSET", key, |state, now| {
            let plan =
                state
                    .engine
                    .plan_hash_set(owned(key), vec![(owned(field), owned(value))], now)?;
            state.carry_out(plan)?;
            Ok(())
        })
        .await
    }

    async fn hash_remove(&self, key: &str, field: &str) -> Result<bool, StoreError> {
        self.call("HDEL", key, |state, now| {
            let plan = state
                .engine
                .plan_hash_remove(owned(key), vec![owned(field)], now)?;
            Ok(state.carry_out(plan)? > 0)
        })
        .await
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.call("MGET", "", |state, now| {
            // As with MGET, a key that holds something else has no value.
            Ok(keys
                .iter()
                .map(|key| {
                    state
                        .engine
                        .text(key.as_bytes(), now)
                        .ok()
                        .flatten()
                        .cloned()
                })
                .collect())
        })
        .await
    }

    async fn exist(&self, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        self.call("EXISTS", "", |state, now| {
            Ok(keys
                .iter()
                .map(|key| state.engine.value(key.as_bytes(), now).is_some())
                .collect())
        })
        .await
    }

    async fn trim(&self, stream: &str, keep: u64) -> Result<(), StoreError> {
        self.call("XTRIM", stream, |state, now| {
            let trim = Trim {
                keep: Keep::Newest(keep),
                approximate: None,
            };
            let plan = state.engine.plan_trim(owned(stream), trim, now)?;
            state.carry_out(plan)?;
            Ok(())
        })
        .await
    }

    async fn trim_acknowledged(
        &self,
        stream: &str,
        group: &str,
        keep: u64,
        most: u64,
    ) -> Result<Trimmed, StoreError> {
        self.call("XTRIM", stream, |state, now| {
            let (key, group) = (owned(stream), group.as_bytes());
            let plan = state
                .engine
                .plan_trim_acknowledged(key, group, keep, most, now)?;
            Ok(state.carry_out(plan)?)
        })
        .await
    }

    async fn make_group(&self, stream: &str, group: &str) -> Result<bool, StoreError> {
        self.call("XGROUP CREATE", stream, |state, now| {
            let start = Some(EntryId::ZERO);
            let plan =
                state
                    .engine
                    .plan_group_create(owned(stream), owned(group), start, None, true, now);
            match plan {
                Ok(plan) => {
                    state.carry_out(plan)?;
                    Ok(true)
                }
                Err(refusal) if refusal == Refusal::BUSY_GROUP => Ok(false),
                Err(refusal) => Err(refusal.into()),
            }
        })
        .await
    }

    async fn delete(&self, key: &str) -> Result<bool, StoreError> {
        self.call("DEL", key, |state, now| {
            let plan = state.engine.plan_delete(vec![owned(key)], now);
            Ok(state.carry_out(plan)? > 0)
        })
        .await
    }

    async fn delete_idle(
        &self,
        stream: &str,
        idle: Duration,
    ) -> Result<Option<Duration>, StoreError> {
        self.call("DEL", stream, |state, now| {
            if state.blocked.waits_for(stream.as_bytes()) {
                state.engine.note_use(stream.as_bytes(), now);
            }
            let unused = state.engine.unused(stream.as_bytes(), now)?;
            if unused.is_none_or(|unused| unused < idle) {
                return Ok(unused);
            }
            let plan = state.engine.plan_delete(vec![owned(stream)], now);
            state.carry_out(plan)?;
            Ok(None)
        })
        .await
    }

    async fn set_members(&self, key: &str) -> Result<Vec<String>, StoreError> {
        self.call("SMEMBERS", key, |state, now| {
            let members = state.engine.set(key.as_bytes(), now)?.into_iter().flatten();
            Ok(members
                .filter_map(|member| std::str::from_utf8(member).ok())
                .map(str::to_owned)
                .collect())
        })
        .await
    }

    async fn set_add(&self, key: &str, member: &str) -> Result<bool, StoreError> {
        self.call("SADD", key, |state, now| {
            let plan = state.engine.plan_set_add(owned(key), owned(member), now)?;
            Ok(state.carry_out(plan)?)
        })
        .await
    }

    async fn set_remove(&self, key: &str, member: &str) -> Result<bool, StoreError> {
        self.call("SREM", key, |state, now| {
            let plan = state
                .engine
                .plan_set_remove(owned(key), owned(member), now)?;
            Ok(state.carry_out(plan)?)
        })
        .await
    }

    async fn scan(&self, pattern: &str) -> Result<Vec<String>, StoreError> {
        const PORTION: usize = 1000;
        let mut cursor = 0;
        let mut found = Vec::new();
        let pattern = glob(pattern);
        loop {
            // In portions, so that a scan of many keys doesn't hold up everybody else.
            let (next, keys) = self
                .call("SCAN", "", |state, now| {
                    Ok(state.engine.scan(
                        cursor,
                        PORTION,
                        Some(pattern.as_bytes()),
                        Some("stream"),
                        now,
                    ))
                })
                .await?;
            found.extend(
                keys.iter()
                    .filter_map(|key| std::str::from_utf8(key).ok())
                    .map(str::to_owned),
            );
            if next == 0 {
                return Ok(found);
            }
            cursor = next;
            tokio::task::yield_now().await;
        }
    }

    fn created(&self) -> Option<broadcast::Receiver<Key>> {
        Some(self.store.created.subscribe())
    }

    async fn health(&self) -> Health {
        let ails = self
            .store
            .lock()
            .log
            .as_ref()
            .and_then(|log| log.ails(Instant::now()).map(str::to_owned));
        ails.map_or(Health::Up, Health::Down)
    }
}

fn whole_hash(state: &State, key: &str, now: u64) -> Result<HashMap<String, String>, Refusal> {
    let hash = state.engine.hash(key.as_bytes(), now)?;
    Ok(hash
        .into_iter()
        .flatten()
        .map(|(field, value)| (text(field), text(value)))
        .collect())
}
