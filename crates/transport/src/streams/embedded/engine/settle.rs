//! Settling an entry that was read: everything is checked before anything is done.

use bytes::Bytes;
use crossway_core::entry::EntryId;

use super::stream::next_id;
use super::{Effect, Engine, NewId, Plan, Refusal, Value};
use crate::streams::{Settled, Settlement};

impl Engine {
    /// Plans one settlement by a consumer of a group; where it can't be done nothing is planned.
    pub(crate) fn plan_settle(
        &self,
        group: &Bytes,
        consumer: &[u8],
        settlement: &Settlement,
        now: u64,
    ) -> Plan<Settled> {
        match self.settle(group, consumer, settlement, now) {
            Ok(effects) => Plan {
                effects,
                answer: Settled::Done,
            },
            Err(settled) => Plan::nothing(settled),
        }
    }

    fn settle(
        &self,
        group: &Bytes,
        consumer: &[u8],
        settlement: &Settlement,
        now: u64,
    ) -> Result<Vec<Effect>, Settled> {
        let source = settlement.stream.as_bytes();
        let pending = match self.value(source, now) {
            Some(Value::Stream(stream)) => stream
                .groups
                .get(group)
                .and_then(|group| group.pending().get(&settlement.entry)),
            _ => None,
        };
        // What another consumer has claimed is its to settle.
        if pending.is_none_or(|pending| pending.consumer != consumer) {
            return Err(Settled::NotPending);
        }
        let mut effects = vec![Effect::Ack {
            stream: Bytes::copy_from_slice(source),
            group: group.clone(),
            ids: vec![settlement.entry],
        }];
        if let Some(consume) = &settlement.consume {
            if !matches!(self.value(consume.as_bytes(), now), Some(Value::Text(_))) {
                return Err(Settled::Unmet);
            }
            effects.push(Effect::Delete {
                key: Bytes::copy_from_slice(consume.as_bytes()),
            });
        }
        // Last ids of the streams that this very step has added to.
        let mut added: Vec<(&str, EntryId)> = Vec::new();
        for append in &settlement.appends {
            let name: &str = &append.stream;
            if append.fields.is_empty() {
                return Err(Settled::Failed(
                    "ERR wrong number of arguments for 'xadd' command".to_owned(),
                ));
            }
            let consumed = settlement.consume.as_deref() == Some(name);
            let seen = added.iter().position(|(stream, _)| *stream == name);
            let last = match seen.and_then(|at| added.get(at)) {
                Some((_, last)) => *last,
                None if consumed => EntryId::ZERO,
                None => match self.stream(name.as_bytes(), now) {
                    Ok(stream) => stream.map_or(EntryId::ZERO, |stream| stream.last_id),
                    Err(Refusal(text)) => return Err(Settled::Failed(text.into_owned())),
                },
            };
            let id = next_id(NewId::Auto, last, now)
                .map_err(|Refusal(text)| Settled::Failed(text.into_owned()))?;
            let stream = Bytes::copy_from_slice(name.as_bytes());
            if seen.is_none() && !consumed {
                effects.extend(self.begin(&stream, now));
            }
            match seen.and_then(|at| added.get_mut(at)) {
                Some((_, last)) => *last = id,
                None => added.push((name, id)),
            }
            effects.push(Effect::Append {
                stream,
                id,
                fields: append.fields.clone(),
            });
        }
        for put in &settlement.puts {
            let ttl = u64::try_from(put.ttl.as_millis()).unwrap_or(u64::MAX);
            effects.push(Effect::Put {
                key: Bytes::copy_from_slice(put.key.as_bytes()),
                value: put.value.clone(),
                expires_at: Some(now.saturating_add(ttl)),
            });
        }
        Ok(effects)
    }
}
