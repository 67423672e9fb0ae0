//! Looking at pending lists, and taking over what a consumer left behind.

use std::ops::Bound;

use bytes::Bytes;
use crossway_core::entry::{Entry, EntryId};

use super::{Effect, Engine, Plan, Refusal};

/// A pending list in a few words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingSummary {
    pub(crate) total: usize,
    pub(crate) range: Option<(EntryId, EntryId)>,
    /// Consumers that something is pending for.
    pub(crate) consumers: Vec<(Bytes, usize)>,
}

/// Which pending entries are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingQuery {
    pub(crate) from: EntryId,
    pub(crate) to: EntryId,
    pub(crate) count: usize,
    pub(crate) min_idle: u64,
    pub(crate) consumer: Option<Bytes>,
}

/// What a take-over gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claimed {
    /// Where to go on, 0-0 at the end.
    pub(crate) next: EntryId,
    pub(crate) entries: Vec<Entry>,
    /// Pending entries that had left the stream; they are no longer pending.
    pub(crate) gone: Vec<EntryId>,
}

impl Engine {
    pub(crate) fn pending_summary(
        &self,
        key: &[u8],
        group: &[u8],
        now: u64,
    ) -> Result<PendingSummary, Refusal> {
        let (_, group) = self.group(key, group, "", now)?;
        let pending = group.pending();
        let range = pending
            .first_key_value()
            .zip(pending.last_key_value())
            .map(|(first, last)| (*first.0, *last.0));
        let consumers = group
            .consumers()
            .iter()
            .filter(|(_, ids)| !ids.is_empty())
            .map(|(name, ids)| (name.clone(), ids.len()))
            .collect();
        Ok(PendingSummary {
            total: pending.len(),
            range,
            consumers,
        })
    }

    /// Pending entries with consumer, idle time in ms and number of deliveries.
    pub(crate) fn pending_list(
        &self,
        key: &[u8],
        group: &[u8],
        query: &PendingQuery,
        now: u64,
    ) -> Result<Vec<(EntryId, Bytes, u64, u64)>, Refusal> {
        let (_, group) = self.group(key, group, "", now)?;
        if query.from > query.to {
            return Ok(Vec::new());
        }
        let row = |id: EntryId| {
            let pending = group.pending().get(&id)?;
            let idle = now.saturating_sub(pending.at);
            (idle >= query.min_idle).then(|| (id, pending.consumer.clone(), idle, pending.count))
        };
        Ok(match &query.consumer {
            Some(consumer) => match group.consumers().get(consumer) {
                Some(ids) => ids
                    .range(query.from..=query.to)
                    .filter_map(|id| row(*id))
                    .take(query.count)
                    .collect(),
                None => Vec::new(),
            },
            None => group
                .pending()
                .range(query.from..=query.to)
                .filter_map(|(id, _)| row(*id))
                .take(query.count)
                .collect(),
        })
    }

    /// Gives a consumer what has been pending for at least `min_idle` ms, from `from` on. Looks
    /// at no more than ten times `count` entries.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn plan_autoclaim(
        &self,
        key: &Bytes,
        group: &Bytes,
        consumer: &Bytes,
        min_idle: u64,
        from: EntryId,
        count: usize,
        ids_only: bool,
        now: u64,
    ) -> Result<Plan<Claimed>, Refusal> {
        let (stream, known) = self.group(key, group, "", now)?;
        let mut attempts = count.saturating_mul(10);
        let mut left = count;
        let mut answer = Claimed {
            next: EntryId::ZERO,
            entries: Vec::new(),
            gone: Vec::new(),
        };
        let mut claims = Vec::new();
        for (id, pending) in known
            .pending()
            .range((Bound::Included(from), Bound::Unbounded))
        {
            if attempts == 0 || left == 0 {
                answer.next = *id;
                break;
            }
            attempts -= 1;
            let Some(entry) = stream.get(*id) else {
                answer.gone.push(*id);
                left -= 1;
                continue;
            };
            if now.saturating_sub(pending.at) < min_idle {
                continue;
            }
            claims.push((*id, pending.count.saturating_add(u64::from(!ids_only))));
            answer.entries.push(entry.clone());
            left -= 1;
        }
        let (stream, group) = (key.clone(), group.clone());
        let mut effects = Vec::new();
        if !answer.gone.is_empty() {
            effects.push(Effect::Ack {
                stream: stream.clone(),
                group: group.clone(),
                ids: answer.gone.clone(),
            });
        }
        if !claims.is_empty() {
            effects.push(Effect::Claim {
                stream,
                group,
                consumer: consumer.clone(),
                at: now,
                entries: claims,
            });
        }
        Ok(Plan { effects, answer })
    }
    /// Gives a consumer all that is pending for others of its group, who are forgotten; tells how
    /// much that was.
    pub(crate) fn plan_inherit(
        &self,
        key: &Bytes,
        group: &Bytes,
        heir: &Bytes,
        now: u64,
    ) -> Result<Plan<usize>, Refusal> {
        let (_, known) = self.group(key, group, "", now)?;
        let mut effects = Vec::new();
        let mut inherited = 0;
        for (consumer, ids) in known.consumers().iter().filter(|(name, _)| *name != heir) {
            let held = ids.iter().filter_map(|id| {
                let pending = known.pending().get(id)?;
                Some((*id, pending.count))
            });
            let entries: Vec<(EntryId, u64)> = held.collect();
            inherited += entries.len();
            if !entries.is_empty() {
                effects.push(Effect::Claim {
                    stream: key.clone(),
                    group: group.clone(),
                    consumer: heir.clone(),
                    at: now,
                    entries,
                });
            }
            effects.push(Effect::ConsumerRemove {
                stream: key.clone(),
                group: group.clone(),
                consumer: consumer.clone(),
            });
        }
        Ok(Plan {
            effects,
            answer: inherited,
        })
    }
}
