//! The thread that puts the log on the disk, and rewrites it when it has grown too long.
//!
//! One `fsync` serves everything that was written before it began, however many wait. A rewrite
//! reads the finished segments again, off to the side, so writers stop only for the change to a
//! new segment.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::segment::{self, Ending};
use super::{Log, remove_before};
use crate::streams::StoreError;
use crate::streams::embedded::engine::Engine;
use crate::streams::embedded::{State, Sync};

/// How long written records may stay off the disk with [`Sync::EverySecond`].
const EVERY: Duration = Duration::from_secs(1);

/// How long to leave a rewrite alone that failed.
const RETRY_COMPACTION: Duration = Duration::from_secs(30);

/// How far the log is on the disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct Durable {
    pub(crate) position: u64,
    pub(crate) failed: Option<StoreError>,
}

/// What the keeper is asked for.
#[derive(Debug, Default)]
struct Orders {
    written: u64,
    compact: bool,
    stop: bool,
    /// The keeper has nothing to do and must be woken.
    idle: bool,
    /// Those who wait for a rewrite.
    waiting: Vec<tokio::sync::oneshot::Sender<Result<(), StoreError>>>,
}

#[derive(Debug, Default)]
struct Desk {
    orders: Mutex<Orders>,
    changed: Condvar,
}

impl Desk {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keeper's handle; it ends the thread when it is dropped, after a last `fsync`.
#[derive(Debug)]
pub(crate) struct Keeper {
    desk: Arc<Desk>,
    durable: watch::Receiver<Durable>,
    sync: Sync,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(crate) fn start(state: Weak<Mutex<State>>, sync: Sync) -> std::io::Result<Keeper> {
        let desk = Arc::new(Desk::default());
        let (sender, durable) = watch::channel(Durable::default());
        let work = Work {
            desk: Arc::clone(&desk),
            state,
            sync,
            durable: sender,
            retry_at: None,
        };
        let thread = std::thread::Builder::new()
            .name("crossway-log".to_owned())
            .spawn(move || work.run())?;
        Ok(Keeper {
            desk,
            durable,
            sync,
            thread: Some(thread),
        })
    }

    /// Tells that the log has been written up to `position`.
    pub(crate) fn written(&self, position: u64, compact: bool) {
        let mut orders = self.desk.orders();
        orders.written = position;
        orders.compact |= compact;
        let wakes = orders.idle;
        drop(orders);
        if wakes {
            self.desk.changed.notify_one();
        }
    }

    /// Asks for a rewrite now.
    pub(crate) fn compact(&self) -> tokio::sync::oneshot::Receiver<Result<(), StoreError>> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut orders = self.desk.orders();
        orders.compact = true;
        orders.waiting.push(sender);
        drop(orders);
        self.desk.changed.notify_one();
        receiver
    }

    /// Waits until what was written up to `position` may be acknowledged.
    pub(crate) async fn durable(&self, position: u64) -> Result<(), StoreError> {
        if self.sync == Sync::EverySecond || self.durable.borrow().position >= position {
            return Ok(());
        }
        let mut durable = self.durable.clone();
        match durable
            .wait_for(|durable| durable.position >= position || durable.failed.is_some())
            .await
        {
            Ok(durable) if durable.position >= position => Ok(()),
            Ok(durable) => Err(durable.failed.clone().unwrap_or_else(stopped)),
            Err(_) => Err(stopped()),
        }
    }
}

fn stopped() -> StoreError {
    StoreError::Disk {
        path: String::new(),
        reason: "the thread that writes the log has ended; restart".to_owned(),
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.desk.orders().stop = true;
        self.desk.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It can be the keeper itself that lets go of the store last.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("the thread that writes the log has panicked");
            }
        }
    }
}

struct Work {
    desk: Arc<Desk>,
    state: Weak<Mutex<State>>,
    sync: Sync,
    durable: watch::Sender<Durable>,
    retry_at: Option<Instant>,
}

impl Work {
    fn run(mut self) {
        loop {
            let (stop, compact) = self.wait();
            if !self.sync_now() && !stop {
                // The disk has failed for good; only being stopped is left to wait for.
                let mut orders = self.desk.orders();
                orders.waiting.clear();
                while !orders.stop {
                    orders = self
                        .desk
                        .changed
                        .wait(orders)
                        .unwrap_or_else(PoisonError::into_inner);
                    orders.waiting.clear();
                }
                return;
            }
            if stop {
                return;
            }
            if compact {
                self.compact();
            }
        }
    }

    /// Waits for something to do; tells whether to stop, and whether to rewrite.
    fn wait(&self) -> (bool, bool) {
        let synced = self.durable.borrow().position;
        let resting = |orders: &Orders| {
            let due = orders.compact
                && (!orders.waiting.is_empty()
                    || self.retry_at.is_none_or(|at| at <= Instant::now()));
            !orders.stop && !due && orders.written <= synced
        };
        let mut orders = self.desk.orders();
        while resting(&orders) {
            orders.idle = true;
            orders = self
                .desk
                .changed
                .wait(orders)
                .unwrap_or_else(PoisonError::into_inner);
        }
        orders.idle = false;
        if self.sync == Sync::EverySecond {
            let until = Instant::now() + EVERY;
            while !orders.stop && orders.waiting.is_empty() {
                let Some(left) = until
                    .checked_duration_since(Instant::now())
                    .filter(|left| !left.is_zero())
                else {
                    break;
                };
                orders = self
                    .desk
                    .changed
                    .wait_timeout(orders, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        }
        let due = orders.compact
            && (!orders.waiting.is_empty() || self.retry_at.is_none_or(|at| at <= Instant::now()));
        if due {
            orders.compact = false;
        }
        (orders.stop, due)
    }

    /// Puts what has been written on the disk; tells whether it is there.
    fn sync_now(&self) -> bool {
        let Some(state) = self.state.upgrade() else {
            return false;
        };
        let (position, file) = match &lock(&state).log {
            Some(log) => (log.written(), log.file()),
            None => return true,
        };
        if self.durable.borrow().position >= position {
            return true;
        }
        match file.sync_data() {
            Ok(()) => {
                self.durable
                    .send_modify(|durable| durable.position = position);
                true
            }
            Err(error) => {
                // After a failed fsync the system may have dropped the pages: trying again proves nothing.
                let reason = format!(
                    "the log can't be put on the disk: {error}; restart once the disk is well"
                );
                tracing::error!(%error, "the log can't be put on the disk; no more writes are taken");
                if let Some(log) = &mut lock(&state).log {
                    log.give_up(reason.clone());
                    let path = log.dir().display().to_string();
                    self.durable.send_modify(|durable| {
                        durable.failed = Some(StoreError::Disk { path, reason })
                    });
                }
                false
            }
        }
    }

    fn compact(&mut self) {
        let done = self.rewrite();
        if let Err(error) = &done {
            tracing::warn!(%error, "the log wasn't rewritten; it is tried again later");
            self.retry_at = Some(Instant::now() + RETRY_COMPACTION);
        } else {
            self.retry_at = None;
        }
        let waiting = std::mem::take(&mut self.desk.orders().waiting);
        for waiting in waiting {
            // Nobody has to stay for the answer.
            let _ = waiting.send(done.clone());
        }
    }

    fn rewrite(&self) -> Result<(), StoreError> {
        let Some(state) = self.state.upgrade() else {
            return Err(stopped());
        };
        let (dir, number) = {
            let mut state = lock(&state);
            let Some(log) = &mut state.log else {
                return Ok(());
            };
            let dir = log.dir().to_owned();
            let failed = |error| disk(&dir, "the log can't go on in a new file", error);
            // Nearly everything is on the disk already; the rest has to be, before a later segment begins.
            log.file().sync_data().map_err(failed)?;
            let number = log.rotate().map_err(failed)?;
            let position = log.written();
            self.durable
                .send_modify(|durable| durable.position = position);
            (dir, number)
        };
        let engine = replay_before(&dir, number)?;
        let len = segment::write_snapshot(&dir, number, &engine)
            .map_err(|error| disk(&dir, "the snapshot can't be written", error))?;
        drop(engine);
        remove_before(&dir, number);
        if let Some(log) = &mut lock(&state).log {
            Log::compacted(log, number, len);
        }
        tracing::info!(bytes = len, "the log was rewritten");
        Ok(())
    }
}

/// The state before a segment, from the files.
fn replay_before(dir: &Path, number: u64) -> Result<Engine, StoreError> {
    let listing =
        segment::list(dir).map_err(|error| disk(dir, "the folder can't be read", error))?;
    let mut engine = Engine::default();
    let base = listing.snapshots.last().copied();
    let snapshot = base.map(|base| segment::snapshot_path(dir, base));
    let segments = listing
        .segments
        .iter()
        .filter(|old| **old < number && base.is_none_or(|base| **old >= base));
    for path in snapshot
        .into_iter()
        .chain(segments.map(|old| segment::segment_path(dir, *old)))
    {
        match segment::replay(&path, &mut engine)
            .map_err(|error| disk(&path, "the file can't be read", error))?
        {
            Ending::Whole { .. } => {}
            Ending::Torn { len: offset, .. } | Ending::Damaged { offset } => {
                return Err(super::damaged(&path, offset));
            }
            Ending::Foreign => return Err(super::foreign(&path)),
        }
    }
    Ok(engine)
}

fn disk(path: &Path, what: &str, error: std::io::Error) -> StoreError {
    StoreError::Disk {
        path: path.display().to_string(),
        reason: format!("{what}: {error}"),
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
