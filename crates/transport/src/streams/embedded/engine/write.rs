//! Adding to streams, trimming them, making and destroying groups, acknowledging.

use bytes::Bytes;
use crossway_core::entry::{EntryId, Fields};

use super::stream::next_id;
use super::{Effect, Engine, NewId, Plan, Refusal, Trim};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddOptions {
    pub(crate) id: NewId,
    /// Make the stream where it is missing.
    pub(crate) make: bool,
    pub(crate) trim: Option<Trim>,
}

impl AddOptions {
    /// The next id, on a stream that is made where it is missing.
    pub(crate) const PLAIN: AddOptions = AddOptions {
        id: NewId::Auto,
        make: true,
        trim: None,
    };
}

impl Engine {
    /// Adds an entry; answers its id, or nothing where the stream is missing and isn't to be made.
    pub(crate) fn plan_add(
        &self,
        key: Bytes,
        fields: Fields,
        options: AddOptions,
        now: u64,
    ) -> Result<Plan<Option<EntryId>>, Refusal> {
        let stream = self.stream(&key, now)?;
        if stream.is_none() && !options.make {
            return Ok(Plan::nothing(None));
        }
        let last = stream.map_or(EntryId::ZERO, |stream| stream.last_id);
        if last == EntryId::MAX {
            return Err(Refusal::EXHAUSTED);
        }
        let id = next_id(options.id, last, now)?;
        let trim = options.trim.and_then(|trim| match stream {
            Some(stream) => stream.plan_trim(trim, Some(id)),
            None => super::Stream::default().plan_trim(trim, Some(id)),
        });
        let mut effects = self.begin(&key, now);
        effects.push(Effect::Append {
            stream: key.clone(),
            id,
            fields,
        });
        if let Some((through, _)) = trim {
            effects.push(Effect::Trim {
                stream: key,
                through,
            });
        }
        Ok(Plan {
            effects,
            answer: Some(id),
        })
    }

    /// Trims a stream; answers how many entries went.
    pub(crate) fn plan_trim(&self, key: Bytes, trim: Trim, now: u64) -> Result<Plan<i64>, Refusal> {
        let Some(stream) = self.stream(&key, now)? else {
            return Ok(Plan::nothing(0));
        };
        Ok(match stream.plan_trim(trim, None) {
            None => Plan::nothing(0),
            Some((through, gone)) => {
                let answer = i64::try_from(gone).unwrap_or(i64::MAX);
                Plan {
                    effects: vec![Effect::Trim {
                        stream: key,
                        through,
                    }],
                    answer,
                }
            }
        })
    }

    /// Makes a group that begins after `from`, or at the end where `from` is `None`.
    pub(crate) fn plan_group_create(
        &self,
        key: Bytes,
        group: Bytes,
        from: Option<EntryId>,
        entries_read: Option<u64>,
        make: bool,
        now: u64,
    ) -> Result<Plan<()>, Refusal> {
        let stream = self.stream(&key, now)?;
        let mut effects = self.begin(&key, now);
        match stream {
            None if !make => return Err(Refusal::GROUP_NEEDS_KEY),
            None => effects.push(Effect::StreamState {
                stream: key.clone(),
                last_id: EntryId::ZERO,
                added: 0,
            }),
            Some(stream) if stream.groups.contains_key(&group) => return Err(Refusal::BUSY_GROUP),
            Some(_) => {}
        }
        let last_delivered =
            from.unwrap_or_else(|| stream.map_or(EntryId::ZERO, |stream| stream.last_id));
        effects.push(Effect::GroupSet {
            stream: key,
            group,
            last_delivered,
            entries_read,
        });
        Ok(Plan {
            effects,
            answer: (),
        })
    }

    /// Destroys a group; answers whether there was one.
    pub(crate) fn plan_group_destroy(
        &self,
        key: Bytes,
        group: Bytes,
        now: u64,
    ) -> Result<Plan<bool>, Refusal> {
        let stream = self.stream(&key, now)?.ok_or(Refusal::GROUP_NEEDS_KEY)?;
        if !stream.groups.contains_key(&group) {
            return Ok(Plan::nothing(false));
        }
        Ok(Plan {
            effects: vec![Effect::GroupDestroy { stream: key, group }],
            answer: true,
        })
    }

    /// Takes entries off a pending list; answers how many were on it.
    pub(crate) fn plan_acknowledge(
        &self,
        key: Bytes,
        group: Bytes,
        ids: &[EntryId],
        now: u64,
    ) -> Result<Plan<i64>, Refusal> {
        let Some(known) = self
            .stream(&key, now)?
            .and_then(|stream| stream.groups.get(&group))
        else {
            return Ok(Plan::nothing(0));
        };
        let mut pending: Vec<EntryId> = ids
            .iter()
            .copied()
            .filter(|id| known.pending().contains_key(id))
            .collect();
        pending.sort_unstable();
        pending.dedup();
        if pending.is_empty() {
            return Ok(Plan::nothing(0));
        }
        let answer = i64::try_from(pending.len()).unwrap_or(i64::MAX);
        Ok(Plan {
            effects: vec![Effect::Ack {
                stream: key,
                group,
                ids: pending,
            }],
            answer,
        })
    }
}
