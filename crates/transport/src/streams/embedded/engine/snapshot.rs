//! The data as effects that make it again, for a log that has grown too long.

use crossway_core::entry::EntryId;

use super::{Effect, Engine, Value};

/// Entries of one pending list in one effect.
const CLAIMS_PER_EFFECT: usize = 1024;

impl Engine {
    /// Gives effects that rebuild the data, one at a time. Keys keep their order of creation.
    pub(crate) fn snapshot<E>(
        &self,
        mut emit: impl FnMut(Effect) -> Result<(), E>,
    ) -> Result<(), E> {
        for key in self.by_number.values() {
            let Some(slot) = self.keys.get(key) else {
                continue;
            };
            match &slot.value {
                Value::Text(value) => emit(Effect::Put {
                    key: key.clone(),
                    value: value.clone(),
                    expires_at: None,
                })?,
                Value::Hash(hash) => {
                    for (field, value) in hash {
                        emit(Effect::HashSet {
                            key: key.clone(),
                            fields: vec![(field.clone(), value.clone())],
                        })?;
                    }
                }
                Value::Stream(stream) => {
                    for entry in stream.range(EntryId::ZERO, EntryId::MAX) {
                        emit(Effect::Append {
                            stream: key.clone(),
                            id: entry.id,
                            fields: entry.fields.clone(),
                        })?;
                    }
                    emit(Effect::StreamState {
                        stream: key.clone(),
                        last_id: stream.last_id,
                        added: stream.added,
                    })?;
                    for (name, group) in &stream.groups {
                        emit(Effect::GroupSet {
                            stream: key.clone(),
                            group: name.clone(),
                            last_delivered: group.last_delivered,
                            entries_read: group.entries_read,
                        })?;
                        for consumer in group.consumers().keys() {
                            emit(Effect::ConsumerCreate {
                                stream: key.clone(),
                                group: name.clone(),
                                consumer: consumer.clone(),
                            })?;
                        }
                        // One effect has one time; entries that were delivered together come together.
                        let mut run: Option<(bytes::Bytes, u64, Vec<(EntryId, u64)>)> = None;
                        for (id, pending) in group.pending() {
                            match &mut run {
                                Some((consumer, at, entries))
                                    if *consumer == pending.consumer
                                        && *at == pending.at
                                        && entries.len() < CLAIMS_PER_EFFECT =>
                                {
                                    entries.push((*id, pending.count));
                                }
                                _ => {
                                    let next = (
                                        pending.consumer.clone(),
                                        pending.at,
                                        vec![(*id, pending.count)],
                                    );
                                    if let Some((consumer, at, entries)) = run.replace(next) {
                                        emit(Effect::Claim {
                                            stream: key.clone(),
                                            group: name.clone(),
                                            consumer,
                                            at,
                                            entries,
                                        })?;
                                    }
                                }
                            }
                        }
                        if let Some((consumer, at, entries)) = run {
                            emit(Effect::Claim {
                                stream: key.clone(),
                                group: name.clone(),
                                consumer,
                                at,
                                entries,
                            })?;
                        }
                    }
                }
            }
            if slot.expires_at.is_some() {
                emit(Effect::Expire {
                    key: key.clone(),
                    at: slot.expires_at,
                })?;
            }
        }
        Ok(())
    }
}
