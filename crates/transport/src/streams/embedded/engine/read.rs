//! Reading as a group.

use bytes::Bytes;
use crossway_core::entry::{Entry, EntryId, Fields};

use super::{Effect, Engine, Group, Plan, Refusal, Stream};

/// An entry of a consumer's history; `None` where it is pending but has left the stream.
pub(crate) type ReadOne = (EntryId, Option<Fields>);

impl Engine {
    /// The stream and the group, or the refusal that says that there is none.
    pub(crate) fn group(
        &self,
        key: &[u8],
        group: &[u8],
        suffix: &str,
        now: u64,
    ) -> Result<(&Stream, &Group), Refusal> {
        let stream = self.stream(key, now)?;
        stream
            .and_then(|stream| stream.groups.get(group).map(|group| (stream, group)))
            .ok_or_else(|| Refusal::no_group(key, group, suffix))
    }

    /// Gives a consumer entries that the group hasn't read yet, at most `count`.
    pub(crate) fn plan_read_new(
        &self,
        key: &Bytes,
        group: &Bytes,
        consumer: &Bytes,
        count: usize,
        keep_pending: bool,
        now: u64,
    ) -> Result<Plan<Vec<Entry>>, Refusal> {
        let (stream, known) = self.group(key, group, " in XREADGROUP with GROUP option", now)?;
        let entries: Vec<Entry> = stream
            .after(known.last_delivered)
            .take(count)
            .cloned()
            .collect();
        let Some(last) = entries.last().map(|entry| entry.id) else {
            return Ok(Plan::nothing(entries));
        };
        // Counted on from what is known, or from the first entry whose place can be told.
        let entries_read = entries
            .iter()
            .fold(known.entries_read, |read, entry| match read {
                Some(read) => Some(read.saturating_add(1)),
                None => stream.read_up_to(entry.id),
            });
        let (stream, group) = (key.clone(), group.clone());
        let position = Effect::GroupSet {
            stream: stream.clone(),
            group: group.clone(),
            last_delivered: last,
            entries_read,
        };
        let consumer = consumer.clone();
        let delivery = if keep_pending {
            let entries = entries.iter().map(|entry| (entry.id, 1)).collect();
            Effect::Claim {
                stream,
                group,
                consumer,
                at: now,
                entries,
            }
        } else {
            Effect::ConsumerCreate {
                stream,
                group,
                consumer,
            }
        };
        Ok(Plan {
            effects: vec![position, delivery],
            answer: entries,
        })
    }

    /// Gives a consumer again what is pending for it after `after`, at most `count`.
    pub(crate) fn plan_read_history(
        &self,
        key: &Bytes,
        group: &Bytes,
        consumer: &Bytes,
        after: EntryId,
        count: usize,
        now: u64,
    ) -> Result<Plan<Vec<ReadOne>>, Refusal> {
        let (stream, known) = self.group(key, group, " in XREADGROUP with GROUP option", now)?;
        let mut redelivered = Vec::new();
        let mut answer = Vec::new();
        for (id, pending) in known.pending_of(consumer, after).take(count) {
            let fields = stream.get(id).map(|entry| entry.fields.clone());
            if fields.is_some() {
                redelivered.push((id, pending.count.saturating_add(1)));
            }
            answer.push((id, fields));
        }
        let mut effects = Vec::new();
        let (stream, group) = (key.clone(), group.clone());
        if !redelivered.is_empty() {
            effects.push(Effect::Claim {
                stream,
                group,
                consumer: consumer.clone(),
                at: now,
                entries: redelivered,
            });
        } else if !known.knows(consumer) {
            effects.push(Effect::ConsumerCreate {
                stream,
                group,
                consumer: consumer.clone(),
            });
        }
        Ok(Plan { effects, answer })
    }
}
