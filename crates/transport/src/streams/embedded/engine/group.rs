//! A consumer group: how far it has read, and what is pending for whom.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use crossway_core::entry::EntryId;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) last_delivered: EntryId,
    /// How many of the stream's entries were read, where that is known.
    pub(crate) entries_read: Option<u64>,
    pending: BTreeMap<EntryId, Pending>,
    /// Each consumer with the ids that are pending for it.
    consumers: BTreeMap<Bytes, BTreeSet<EntryId>>,
}

/// An entry that was delivered and not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) consumer: Bytes,
    /// When it was last delivered, ms since the epoch.
    pub(crate) at: u64,
    /// How often.
    pub(crate) count: u64,
}

impl Group {
    pub(crate) fn pending(&self) -> &BTreeMap<EntryId, Pending> {
        &self.pending
    }

    pub(crate) fn consumers(&self) -> &BTreeMap<Bytes, BTreeSet<EntryId>> {
        &self.consumers
    }

    pub(crate) fn knows(&self, consumer: &[u8]) -> bool {
        self.consumers.contains_key(consumer)
    }

    /// What is pending for a consumer, after `after`, oldest first.
    pub(crate) fn pending_of<'a>(
        &'a self,
        consumer: &[u8],
        after: EntryId,
    ) -> impl Iterator<Item = (EntryId, &'a Pending)> {
        self.consumers
            .get(consumer)
            .into_iter()
            .flat_map(move |ids| {
                after
                    .next()
                    .map(|from| ids.range(from..))
                    .into_iter()
                    .flatten()
            })
            .filter_map(|id| self.pending.get(id).map(|pending| (*id, pending)))
    }

    pub(crate) fn add_consumer(&mut self, consumer: &Bytes) {
        if !self.consumers.contains_key(consumer) {
            self.consumers
                .insert(Bytes::copy_from_slice(consumer), BTreeSet::new());
        }
    }

    pub(crate) fn remove_consumer(&mut self, consumer: &[u8]) {
        for id in self.consumers.remove(consumer).unwrap_or_default() {
            self.pending.remove(&id);
        }
    }

    pub(crate) fn claim(&mut self, consumer: &Bytes, at: u64, entries: &[(EntryId, u64)]) {
        self.add_consumer(consumer);
        let Some(name) = self
            .consumers
            .get_key_value(consumer)
            .map(|(name, _)| name.clone())
        else {
            return;
        };
        for (id, count) in entries {
            let before = self.pending.insert(
                *id,
                Pending {
                    consumer: name.clone(),
                    at,
                    count: *count,
                },
            );
            if let Some(before) = before.filter(|before| before.consumer != name)
                && let Some(ids) = self.consumers.get_mut(&before.consumer)
            {
                ids.remove(id);
            }
        }
        if let Some(ids) = self.consumers.get_mut(&name) {
            ids.extend(entries.iter().map(|(id, _)| *id));
        }
    }

    pub(crate) fn acknowledge(&mut self, ids: &[EntryId]) {
        for id in ids {
            if let Some(pending) = self.pending.remove(id)
                && let Some(ids) = self.consumers.get_mut(&pending.consumer)
            {
                ids.remove(id);
            }
        }
    }
}
