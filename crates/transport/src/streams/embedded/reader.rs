//! Reading and settling within the process.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use crossway_core::entry::{Entry, EntryId, Fields};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::blocked::Fault;
use super::engine::ReadOne;
use super::{Position, State, Store};
use crate::streams::{
    Batch, Fence, GroupReader, Interrupt, Key, Read, ReadEntry, ReaderOptions, Settled, Settlement,
    StoreError,
};

/// Entries in one batch from all streams together, near enough; what is left comes with the next read.
const BATCH: usize = 4096;

/// How far a reader is with one of its streams.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Pending entries up to this one were given again; `None` when all were.
    history: Option<EntryId>,
    /// The group was seen, so that it has vanished if it isn't there.
    seen: bool,
}

const FROM_HISTORY: Option<EntryId> = Some(EntryId::ZERO);

#[derive(Debug)]
pub(super) struct Reader {
    store: Arc<Store>,
    seat: u64,
    options: ReaderOptions,
    group: Bytes,
    consumer: Bytes,
    wake: Arc<Notify>,
    interrupted: Arc<AtomicBool>,
    places: HashMap<Key, Place>,
    assigned: Option<Vec<Key>>,
    rewound: bool,
    /// A batch that was read, but not handed out because the read was given up.
    kept: Option<(Batch, Position)>,
    /// What was done and not yet asked about, and how far the log must be written for it.
    submitted: VecDeque<(Vec<Settled>, Position)>,
    /// Until when reads may be begun; `None` for ever.
    allowed: Option<Instant>,
}

impl Reader {
    pub(super) fn new(store: Arc<Store>, options: ReaderOptions) -> Reader {
        let wake = Arc::new(Notify::new());
        let seat = store
            .lock()
            .subscriptions
            .join(&options.watched, Arc::clone(&wake));
        let group = Bytes::copy_from_slice(options.group.as_bytes());
        let consumer = Bytes::copy_from_slice(options.consumer.as_bytes());
        let (interrupted, places) = (Arc::default(), HashMap::new());
        Reader {
            store,
            seat,
            options,
            group,
            consumer,
            wake,
            interrupted,
            places,
            assigned: None,
            rewound: false,
            kept: None,
            submitted: VecDeque::new(),
            allowed: None,
        }
    }

    /// Takes up a new assignment, and goes back to what is pending where that was asked for.
    fn prepare(&mut self, state: &mut State) {
        if let Some(assigned) = self.assigned.take() {
            let wanted: HashSet<&Key> = assigned.iter().collect();
            self.places.retain(|stream, _| {
                let stays = wanted.contains(stream);
                if !stays {
                    state.subscriptions.unsubscribe(self.seat, stream);
                }
                stays
            });
            for stream in &assigned {
                if !self.places.contains_key(stream) {
                    self.places.insert(
                        Arc::clone(stream),
                        Place {
                            history: FROM_HISTORY,
                            seen: false,
                        },
                    );
                    state.subscriptions.subscribe(self.seat, stream);
                }
            }
        }
        if std::mem::take(&mut self.rewound) {
            for (stream, place) in &mut self.places {
                place.history = FROM_HISTORY;
                state.subscriptions.look_again(self.seat, stream);
            }
        }
    }

    /// Takes what there is from every stream that has something.
    fn collect(&mut self, state: &mut State, now: u64) -> Result<Batch, StoreError> {
        self.prepare(state);
        let mut batch = Batch::default();
        for _ in 0..state.subscriptions.waiting(self.seat) {
            if batch.entries.len() >= BATCH {
                break;
            }
            let Some(stream) = state.subscriptions.next(self.seat) else {
                break;
            };
            match self.take(state, &stream, &mut batch, now) {
                Ok(more) => {
                    if more {
                        state.subscriptions.look_again(self.seat, &stream);
                    }
                }
                Err(Fault::Refused(_)) => batch.not_streams.push(stream),
                Err(Fault::Store(error)) => {
                    state.subscriptions.look_again(self.seat, &stream);
                    if batch.entries.is_empty() {
                        return Err(error);
                    }
                    break;
                }
            }
        }
        // In the same lock as the entries: what was written before them has been told with them.
        batch.changed = state.subscriptions.take_changed(self.seat);
        Ok(batch)
    }

    /// Takes at most `count` entries from a stream: pending ones first, then new ones. Tells
    /// whether there may be more.
    fn take(
        &mut self,
        state: &mut State,
        stream: &Key,
        batch: &mut Batch,
        now: u64,
    ) -> Result<bool, Fault> {
        let Some(place) = self.places.get_mut(stream) else {
            return Ok(false);
        };
        let key = Bytes::copy_from_slice(stream.as_bytes());
        let known = state
            .engine
            .stream(&key, now)?
            .is_some_and(|held| held.groups.contains_key(&self.group));
        if !known {
            let plan = state.engine.plan_group_create(
                key.clone(),
                self.group.clone(),
                Some(EntryId::ZERO),
                None,
                true,
                now,
            )?;
            state.carry_out(plan)?;
            if place.seen {
                batch.remade.push(Arc::clone(stream));
            }
            place.history = FROM_HISTORY;
        } else if !place.seen {
            let plan = state
                .engine
                .plan_inherit(&key, &self.group, &self.consumer, now)?;
            state.carry_out(plan)?;
        }
        place.seen = true;
        let mut left = self.options.count.max(1);
        if let Some(after) = place.history {
            let plan = state.engine.plan_read_history(
                &key,
                &self.group,
                &self.consumer,
                after,
                left,
                now,
            )?;
            let entries = state.carry_out(plan)?;
            left = left.saturating_sub(entries.len());
            // Fewer than asked for: that was all of it.
            place.history = entries.last().map(|(id, _)| *id).filter(|_| left == 0);
            batch.entries.extend(entries.into_iter().map(|entry| Read {
                stream: Arc::clone(stream),
                entry: measure(&self.options, entry),
            }));
            if left == 0 {
                return Ok(true);
            }
        }
        let plan =
            state
                .engine
                .plan_read_new(&key, &self.group, &self.consumer, left, true, now)?;
        let entries = state.carry_out(plan)?;
        let more = entries.len() == left;
        batch
            .entries
            .extend(entries.into_iter().map(|Entry { id, fields }| Read {
                stream: Arc::clone(stream),
                entry: measure(&self.options, (id, Some(fields))),
            }));
        Ok(more)
    }

    async fn hand_out(&mut self) -> Result<Option<Batch>, StoreError> {
        let Some(position) = self.kept.as_ref().map(|(_, position)| *position) else {
            return Ok(None);
        };
        self.store.durable(position).await?;
        Ok(self.kept.take().map(|(batch, _)| batch))
    }
}

/// The entry, or as much of it as the reader's limits allow.
fn measure(options: &ReaderOptions, (id, fields): ReadOne) -> ReadEntry {
    let Some(fields) = fields else {
        return ReadEntry::Gone(id);
    };
    let size = fields.size();
    if size <= options.max_entry_bytes && fields.len() <= options.max_fields {
        return ReadEntry::Whole(Entry { id, fields });
    }
    let mut room = options.max_entry_bytes;
    let mut head = Fields::default();
    for (name, value) in &fields {
        let Some(rest) = room.checked_sub(name.len().saturating_add(value.len())) else {
            continue;
        };
        if head.len() == options.max_fields {
            break;
        }
        room = rest;
        head.push(name.clone(), value.clone());
    }
    ReadEntry::Oversize {
        id,
        bytes: size as u64,
        fields: fields.len() as u64,
        head,
    }
}

#[async_trait]
impl GroupReader for Reader {
    fn assign(&mut self, streams: Vec<Key>) {
        self.assigned = Some(streams);
    }

    fn allow(&mut self, until: std::time::Instant) {
        self.allowed = Some(until.into());
    }

    async fn read(&mut self) -> Result<Batch, StoreError> {
        if self
            .allowed
            .is_some_and(|allowed| Instant::now() >= allowed)
        {
            return Ok(Batch::default());
        }
        let until = Instant::now() + self.options.block;
        loop {
            if let Some(batch) = self.hand_out().await? {
                return Ok(batch);
            }
            let store = Arc::clone(&self.store);
            // Its own deliveries needn't be durable: after a crash they are made again.
            let ((batch, seen), _) = store.run(|state, now| {
                let seen = state.position();
                (self.collect(state, now), seen)
            });
            let batch = batch?;
            let idle = batch.entries.is_empty()
                && !batch.changed
                && batch.remade.is_empty()
                && batch.not_streams.is_empty();
            if !idle {
                self.kept = Some((batch, seen));
                continue;
            }
            if self.interrupted.swap(false, Ordering::AcqRel) {
                return Ok(Batch::default());
            }
            if tokio::time::timeout_at(until, self.wake.notified())
                .await
                .is_err()
            {
                return Ok(Batch::default());
            }
        }
    }

    fn rewind(&mut self) {
        self.rewound = true;
    }

    async fn submit(
        &mut self,
        fence: &Fence,
        settlements: Vec<Settlement>,
    ) -> Result<(), StoreError> {
        let store = Arc::clone(&self.store);
        let (settled, position) = store.run(|state, now| {
            if !state.engine.hash_field_is(
                fence.key.as_bytes(),
                fence.field.as_bytes(),
                fence.value.as_bytes(),
                now,
            ) {
                return Err(StoreError::Fenced);
            }
            let mut settled = Vec::with_capacity(settlements.len());
            for settlement in &settlements {
                let plan = state
                    .engine
                    .plan_settle(&self.group, &self.consumer, settlement, now);
                match state.carry_out(plan) {
                    Ok(done) => settled.push(done),
                    Err(error) if settled.is_empty() => return Err(error),
                    // Those before it are done; this one isn't, and is still pending.
                    Err(StoreError::Refused { reason, .. }) => {
                        settled.push(Settled::Failed(reason))
                    }
                    Err(error) => settled.push(Settled::Failed(format!("MISCONF {error}"))),
                }
            }
            Ok(settled)
        });
        match settled {
            Ok(settled) => {
                self.submitted.push_back((settled, position));
                Ok(())
            }
            Err(error) => {
                self.submitted.clear();
                Err(error)
            }
        }
    }

    async fn outcome(&mut self) -> Result<Option<Vec<Settled>>, StoreError> {
        let Some((settled, position)) = self.submitted.pop_front() else {
            return Ok(None);
        };
        let durable = self.store.durable(position).await;
        if let Err(error) = durable {
            self.submitted.clear();
            return Err(error);
        }
        Ok(Some(settled))
    }

    fn interrupter(&self) -> Box<dyn Interrupt> {
        Box::new(Interrupter {
            interrupted: Arc::clone(&self.interrupted),
            wake: Arc::clone(&self.wake),
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let streams: Vec<Key> = self.places.keys().cloned().collect();
        self.store
            .lock()
            .subscriptions
            .leave(self.seat, &streams, &self.options.watched);
    }
}

#[derive(Debug)]
struct Interrupter {
    interrupted: Arc<AtomicBool>,
    wake: Arc<Notify>,
}

#[async_trait]
impl Interrupt for Interrupter {
    async fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
        self.wake.notify_one();
    }
}
