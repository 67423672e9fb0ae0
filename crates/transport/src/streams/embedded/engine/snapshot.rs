//! The data as effects that make it again, for a log that has grown too long.

use bytes::Bytes;
use crossway_core::entry::EntryId;

use super::{Effect, Engine, Group, Stream, Value};

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
                Value::Set(set) => {
                    for member in set {
                        emit(Effect::SetAdd {
                            key: key.clone(),
                            members: vec![member.clone()],
                        })?;
                    }
                }
                Value::Stream(stream) => whole_stream(key, stream, &mut emit)?,
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

fn whole_stream<E>(
    key: &Bytes,
    stream: &Stream,
    emit: &mut impl FnMut(Effect) -> Result<(), E>,
) -> Result<(), E> {
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
        pending(key, name, group, emit)?;
    }
    Ok(())
}

/// One effect has one consumer and one time; entries that were delivered together come together.
fn pending<E>(
    key: &Bytes,
    name: &Bytes,
    group: &Group,
    emit: &mut impl FnMut(Effect) -> Result<(), E>,
) -> Result<(), E> {
    let mut rest = group.pending().iter().peekable();
    while let Some((id, first)) = rest.next() {
        let mut entries = vec![(*id, first.count)];
        while entries.len() < CLAIMS_PER_EFFECT {
            let Some((id, next)) =
                rest.next_if(|(_, next)| next.consumer == first.consumer && next.at == first.at)
            else {
                break;
            };
            entries.push((*id, next.count));
        }
        let (consumer, at) = (first.consumer.clone(), first.at);
        emit(Effect::Claim {
            stream: key.clone(),
            group: name.clone(),
            consumer,
            at,
            entries,
        })?;
    }
    Ok(())
}
