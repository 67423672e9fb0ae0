//! Effects as bytes: a tag, then numbers as LEB128 and byte strings with their length before them.

use bytes::Bytes;
use crossway_core::entry::{EntryId, Fields};

use crate::streams::embedded::engine::Effect;

/// Writes an effect at the end of a buffer.
pub(crate) fn encode(effect: &Effect, out: &mut Vec<u8>) {
    match effect {
        Effect::Put {
            key,
            value,
            expires_at,
        } => {
            out.push(1);
            bytes(out, key);
            bytes(out, value);
            option(out, *expires_at);
        }
        Effect::Delete { key } => {
            out.push(2);
            bytes(out, key);
        }
        Effect::Expire { key, at } => {
            out.push(3);
            bytes(out, key);
            option(out, *at);
        }
        Effect::HashSet { key, fields } => {
            out.push(4);
            bytes(out, key);
            pairs(out, fields.len(), fields.iter());
        }
        Effect::HashRemove { key, fields } => {
            out.push(5);
            bytes(out, key);
            list(out, fields);
        }
        Effect::SetAdd { key, members } => {
            out.push(15);
            bytes(out, key);
            list(out, members);
        }
        Effect::SetRemove { key, members } => {
            out.push(16);
            bytes(out, key);
            list(out, members);
        }
        Effect::Append { stream, id, fields } => {
            out.push(6);
            bytes(out, stream);
            entry_id(out, *id);
            pairs(out, fields.len(), fields.iter());
        }
        Effect::Trim { stream, through } => {
            out.push(7);
            bytes(out, stream);
            entry_id(out, *through);
        }
        Effect::StreamState {
            stream,
            last_id,
            added,
        } => {
            out.push(8);
            bytes(out, stream);
            entry_id(out, *last_id);
            number(out, *added);
        }
        Effect::GroupSet {
            stream,
            group,
            last_delivered,
            entries_read,
        } => {
            out.push(9);
            bytes(out, stream);
            bytes(out, group);
            entry_id(out, *last_delivered);
            option(out, *entries_read);
        }
        Effect::GroupDestroy { stream, group } => {
            out.push(10);
            bytes(out, stream);
            bytes(out, group);
        }
        Effect::ConsumerCreate {
            stream,
            group,
            consumer,
        } => {
            out.push(11);
            bytes(out, stream);
            bytes(out, group);
            bytes(out, consumer);
        }
        Effect::ConsumerRemove {
            stream,
            group,
            consumer,
        } => {
            out.push(14);
            bytes(out, stream);
            bytes(out, group);
            bytes(out, consumer);
        }
        Effect::Claim {
            stream,
            group,
            consumer,
            at,
            entries,
        } => {
            out.push(12);
            bytes(out, stream);
            bytes(out, group);
            bytes(out, consumer);
            number(out, *at);
            number(out, entries.len() as u64);
            for (id, count) in entries {
                entry_id(out, *id);
                number(out, *count);
            }
        }
        Effect::Ack { stream, group, ids } => {
            out.push(13);
            bytes(out, stream);
            bytes(out, group);
            number(out, ids.len() as u64);
            for id in ids {
                entry_id(out, *id);
            }
        }
    }
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    number(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn list(out: &mut Vec<u8>, values: &[Bytes]) {
    number(out, values.len() as u64);
    for value in values {
        bytes(out, value);
    }
}

fn option(out: &mut Vec<u8>, value: Option<u64>) {
    match value {
        None => out.push(0),
        Some(value) => {
            out.push(1);
            number(out, value);
        }
    }
}

fn entry_id(out: &mut Vec<u8>, id: EntryId) {
    number(out, id.ms);
    number(out, id.seq);
}

fn pairs<'a>(out: &mut Vec<u8>, len: usize, fields: impl Iterator<Item = &'a (Bytes, Bytes)>) {
    number(out, len as u64);
    for (name, value) in fields {
        bytes(out, name);
        bytes(out, value);
    }
}

/// Reads all effects of a record; `None` where the bytes aren't effects.
pub(crate) fn decode(mut payload: Bytes) -> Option<Vec<Effect>> {
    let mut effects = Vec::new();
    while !payload.is_empty() {
        effects.push(take_effect(&mut payload)?);
    }
    Some(effects)
}

fn take_effect(from: &mut Bytes) -> Option<Effect> {
    Some(match take_byte(from)? {
        1 => Effect::Put {
            key: take_bytes(from)?,
            value: take_bytes(from)?,
            expires_at: take_option(from)?,
        },
        2 => Effect::Delete {
            key: take_bytes(from)?,
        },
        3 => Effect::Expire {
            key: take_bytes(from)?,
            at: take_option(from)?,
        },
        4 => Effect::HashSet {
            key: take_bytes(from)?,
            fields: take_pairs(from)?,
        },
        5 => Effect::HashRemove {
            key: take_bytes(from)?,
            fields: take_list(from, take_bytes)?,
        },
        15 => Effect::SetAdd {
            key: take_bytes(from)?,
            members: take_list(from, take_bytes)?,
        },
        16 => Effect::SetRemove {
            key: take_bytes(from)?,
            members: take_list(from, take_bytes)?,
        },
        6 => Effect::Append {
            stream: take_bytes(from)?,
            id: take_id(from)?,
            fields: Fields::from(take_pairs(from)?),
        },
        7 => Effect::Trim {
            stream: take_bytes(from)?,
            through: take_id(from)?,
        },
        8 => Effect::StreamState {
            stream: take_bytes(from)?,
            last_id: take_id(from)?,
            added: take_number(from)?,
        },
        9 => Effect::GroupSet {
            stream: take_bytes(from)?,
            group: take_bytes(from)?,
            last_delivered: take_id(from)?,
            entries_read: take_option(from)?,
        },
        10 => Effect::GroupDestroy {
            stream: take_bytes(from)?,
            group: take_bytes(from)?,
        },
        11 => Effect::ConsumerCreate {
            stream: take_bytes(from)?,
            group: take_bytes(from)?,
            consumer: take_bytes(from)?,
        },
        14 => Effect::ConsumerRemove {
            stream: take_bytes(from)?,
            group: take_bytes(from)?,
            consumer: take_bytes(from)?,
        },
        12 => Effect::Claim {
            stream: take_bytes(from)?,
            group: take_bytes(from)?,
            consumer: take_bytes(from)?,
            at: take_number(from)?,
            entries: take_list(from, |from| Some((take_id(from)?, take_number(from)?)))?,
        },
        13 => Effect::Ack {
            stream: take_bytes(from)?,
            group: take_bytes(from)?,
            ids: take_list(from, take_id)?,
        },
        _ => return None,
    })
}

fn take_byte(from: &mut Bytes) -> Option<u8> {
    let byte = *from.first()?;
    let _ = from.split_to(1);
    Some(byte)
}

fn take_number(from: &mut Bytes) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take_byte(from)?;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take_bytes(from: &mut Bytes) -> Option<Bytes> {
    let len = usize::try_from(take_number(from)?).ok()?;
    (len <= from.len()).then(|| from.split_to(len))
}

fn take_option(from: &mut Bytes) -> Option<Option<u64>> {
    match take_byte(from)? {
        0 => Some(None),
        1 => Some(Some(take_number(from)?)),
        _ => None,
    }
}

fn take_id(from: &mut Bytes) -> Option<EntryId> {
    Some(EntryId::new(take_number(from)?, take_number(from)?))
}

fn take_list<T>(from: &mut Bytes, take: impl Fn(&mut Bytes) -> Option<T>) -> Option<Vec<T>> {
    // The length isn't trusted with an allocation: each element takes at least one byte.
    let len = usize::try_from(take_number(from)?)
        .ok()
        .filter(|len| *len <= from.len())?;
    (0..len).map(|_| take(from)).collect()
}

fn take_pairs(from: &mut Bytes) -> Option<Vec<(Bytes, Bytes)>> {
    take_list(from, |from| Some((take_bytes(from)?, take_bytes(from)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn word() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from)
    }

    fn id() -> impl Strategy<Value = EntryId> {
        (any::<u64>(), any::<u64>()).prop_map(|(ms, seq)| EntryId::new(ms, seq))
    }

    fn effect() -> impl Strategy<Value = Effect> {
        let fields = || prop::collection::vec((word(), word()), 0..4);
        prop_oneof![
            (word(), word(), any::<Option<u64>>()).prop_map(|(key, value, expires_at)| {
                Effect::Put {
                    key,
                    value,
                    expires_at,
                }
            }),
            word().prop_map(|key| Effect::Delete { key }),
            (word(), any::<Option<u64>>()).prop_map(|(key, at)| Effect::Expire { key, at }),
            (word(), fields()).prop_map(|(key, fields)| Effect::HashSet { key, fields }),
            (word(), prop::collection::vec(word(), 0..4))
                .prop_map(|(key, fields)| Effect::HashRemove { key, fields }),
            (word(), prop::collection::vec(word(), 0..3))
                .prop_map(|(key, members)| Effect::SetAdd { key, members }),
            (word(), prop::collection::vec(word(), 0..3))
                .prop_map(|(key, members)| Effect::SetRemove { key, members }),
            (word(), id(), fields()).prop_map(|(stream, id, fields)| Effect::Append {
                stream,
                id,
                fields: fields.into()
            }),
            (word(), id()).prop_map(|(stream, through)| Effect::Trim { stream, through }),
            (word(), id(), any::<u64>()).prop_map(|(stream, last_id, added)| Effect::StreamState {
                stream,
                last_id,
                added
            }),
            (word(), word(), id(), any::<Option<u64>>()).prop_map(
                |(stream, group, last_delivered, entries_read)| {
                    Effect::GroupSet {
                        stream,
                        group,
                        last_delivered,
                        entries_read,
                    }
                }
            ),
            (word(), word()).prop_map(|(stream, group)| Effect::GroupDestroy { stream, group }),
            (word(), word(), word()).prop_map(|(stream, group, consumer)| Effect::ConsumerCreate {
                stream,
                group,
                consumer
            }),
            (word(), word(), word()).prop_map(|(stream, group, consumer)| Effect::ConsumerRemove {
                stream,
                group,
                consumer
            }),
            (
                word(),
                word(),
                word(),
                any::<u64>(),
                prop::collection::vec((id(), any::<u64>()), 0..4)
            )
                .prop_map(|(stream, group, consumer, at, entries)| Effect::Claim {
                    stream,
                    group,
                    consumer,
                    at,
                    entries
                }),
            (word(), word(), prop::collection::vec(id(), 0..4))
                .prop_map(|(stream, group, ids)| Effect::Ack { stream, group, ids }),
        ]
    }

    proptest! {
        #[test]
        fn effects_are_read_back_as_they_were_written(effects in prop::collection::vec(effect(), 0..6)) {
            let mut out = Vec::new();
            for effect in &effects {
                encode(effect, &mut out);
            }
            prop_assert_eq!(decode(Bytes::from(out)), Some(effects));
        }

        #[test]
        fn arbitrary_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(Bytes::from(bytes));
        }
    }
}
