//! Carrying effects out.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::{Effect, Engine, Group, Slot, Stream, Value};

impl Engine {
    /// Carries one effect out. Tells whether a stream came into being by it.
    pub(crate) fn apply(&mut self, effect: &Effect) -> bool {
        match effect {
            Effect::Put {
                key,
                value,
                expires_at,
            } => {
                // Values are copied, so that a small one doesn't hold on to the buffer it came in.
                let slot = self.make(key, || Value::Text(Bytes::new()));
                slot.value = Value::Text(Bytes::copy_from_slice(value));
                self.expire(key, *expires_at);
            }
            Effect::Delete { key } => self.remove(key),
            Effect::Expire { key, at } => self.expire(key, *at),
            Effect::HashSet { key, fields } => {
                if let Value::Hash(hash) =
                    &mut self.make(key, || Value::Hash(BTreeMap::new())).value
                {
                    for (field, value) in fields {
                        hash.insert(Bytes::copy_from_slice(field), Bytes::copy_from_slice(value));
                    }
                }
            }
            Effect::HashRemove { key, fields } => {
                if let Some(Slot {
                    value: Value::Hash(hash),
                    ..
                }) = self.keys.get_mut(key)
                {
                    for field in fields {
                        hash.remove(field);
                    }
                    if hash.is_empty() {
                        self.remove(key);
                    }
                }
            }
            Effect::SetAdd { key, members } => {
                if let Value::Set(set) = &mut self.make(key, || Value::Set(BTreeSet::new())).value {
                    set.extend(members.iter().map(|member| Bytes::copy_from_slice(member)));
                }
            }
            Effect::SetRemove { key, members } => {
                if let Some(Slot {
                    value: Value::Set(set),
                    ..
                }) = self.keys.get_mut(key)
                {
                    for member in members {
                        set.remove(member);
                    }
                    if set.is_empty() {
                        self.remove(key);
                    }
                }
            }
            Effect::Append { stream, id, fields } => {
                let new = !self.keys.contains_key(stream);
                if let Some(stream) = self.make_stream(stream) {
                    stream.push(*id, fields);
                }
                return new;
            }
            Effect::StreamState {
                stream,
                last_id,
                added,
            } => {
                let new = !self.keys.contains_key(stream);
                if let Some(stream) = self.make_stream(stream) {
                    stream.set_state(*last_id, *added);
                }
                return new;
            }
            Effect::Trim { stream, through } => {
                if let Some(stream) = self.stream_mut(stream) {
                    stream.trim_through(*through);
                }
            }
            Effect::GroupSet {
                stream,
                group,
                last_delivered,
                entries_read,
            } => {
                if let Some(stream) = self.stream_mut(stream) {
                    if !stream.groups.contains_key(group) {
                        stream
                            .groups
                            .insert(Bytes::copy_from_slice(group), Group::default());
                    }
                    if let Some(group) = stream.groups.get_mut(group) {
                        group.last_delivered = *last_delivered;
                        group.entries_read = *entries_read;
                    }
                }
            }
            Effect::GroupDestroy { stream, group } => {
                if let Some(stream) = self.stream_mut(stream) {
                    stream.groups.remove(group);
                }
            }
            Effect::ConsumerCreate {
                stream,
                group,
                consumer,
            } => {
                if let Some(group) = self.group_mut(stream, group) {
                    group.add_consumer(consumer);
                }
            }
            Effect::ConsumerRemove {
                stream,
                group,
                consumer,
            } => {
                if let Some(group) = self.group_mut(stream, group) {
                    group.remove_consumer(consumer);
                }
            }
            Effect::Claim {
                stream,
                group,
                consumer,
                at,
                entries,
            } => {
                if let Some(group) = self.group_mut(stream, group) {
                    group.claim(consumer, *at, entries);
                }
            }
            Effect::Ack { stream, group, ids } => {
                if let Some(group) = self.group_mut(stream, group) {
                    group.acknowledge(ids);
                }
            }
        }
        false
    }

    fn make(&mut self, key: &Bytes, empty: impl FnOnce() -> Value) -> &mut Slot {
        if !self.keys.contains_key(key) {
            self.last_number = self.last_number.saturating_add(1);
            self.by_number
                .insert(self.last_number, Bytes::copy_from_slice(key));
        }
        let number = self.last_number;
        let name = if self.keys.contains_key(key) {
            key.clone()
        } else {
            Bytes::copy_from_slice(key)
        };
        self.keys.entry(name).or_insert_with(|| Slot {
            value: empty(),
            expires_at: None,
            used_at: None,
            number,
        })
    }

    fn make_stream(&mut self, key: &Bytes) -> Option<&mut Stream> {
        if self.keys.contains_key(key) {
            return self.stream_mut(key);
        }
        match &mut self.make(key, || Value::Stream(Box::default())).value {
            Value::Stream(stream) => Some(stream),
            Value::Text(_) | Value::Hash(_) | Value::Set(_) => None,
        }
    }

    fn stream_mut(&mut self, key: &Bytes) -> Option<&mut Stream> {
        match self.keys.get_mut(key).map(|slot| &mut slot.value) {
            Some(Value::Stream(stream)) => Some(stream),
            _ => None,
        }
    }

    fn group_mut(&mut self, stream: &Bytes, group: &Bytes) -> Option<&mut Group> {
        self.stream_mut(stream)?.groups.get_mut(group)
    }

    fn remove(&mut self, key: &Bytes) {
        if let Some(slot) = self.keys.remove(key) {
            self.by_number.remove(&slot.number);
            if let Some(at) = slot.expires_at {
                self.expiries.remove(&(at, slot.number));
            }
        }
    }

    fn expire(&mut self, key: &Bytes, at: Option<u64>) {
        if let Some(slot) = self.keys.get_mut(key) {
            if let Some(before) = slot.expires_at.take() {
                self.expiries.remove(&(before, slot.number));
            }
            if let Some(at) = at {
                slot.expires_at = Some(at);
                self.expiries.insert((at, slot.number));
            }
        }
    }
}
