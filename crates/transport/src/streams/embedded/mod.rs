//! The embedded store: a stream store within the process, durable in one folder.
//!
//! [`engine`] holds the data and its rules, without any I/O. [`log`] keeps every step in a file.
//! [`state`] joins the two under one lock and tells those who wait. [`reader`] and [`port`] serve
//! the [`Streams`](crate::streams::Streams) port within the process; [`server`] serves the Redis
//! protocol to everybody else, over the same data.

mod blocked;
mod engine;
mod log;
mod port;
mod reader;
pub mod server;
mod state;
mod subscriptions;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::broadcast;

use self::engine::Engine;
use self::log::keeper::Keeper;
pub(crate) use self::state::State;
use crate::streams::{Key, StoreError};

/// Names of new streams that a listener may be behind before it has to scan.
const CREATED_BACKLOG: usize = 1024;

/// When a write counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sync {
    /// When it is on the disk. Survives loss of power.
    #[default]
    Always,
    /// When the system has it. Survives the end of the process however it comes; loss of power
    /// may cost the last second.
    EverySecond,
}

/// Where and how an embedded store keeps its data.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// The folder of the log, made where it is missing. One process at a time uses it.
    pub dir: PathBuf,
    /// When a write counts as done.
    pub sync: Sync,
}

/// A stream store within the process.
#[derive(Debug)]
pub struct Embedded {
    store: Arc<Store>,
}

/// What the store's users within the process share.
#[derive(Debug)]
pub(crate) struct Store {
    // Dropped first: its last fsync needs the state.
    keeper: Option<Keeper>,
    state: Arc<Mutex<State>>,
    created: broadcast::Sender<Key>,
}

impl Embedded {
    /// Opens the store in a folder, and reads what is there. Blocks while it reads.
    ///
    /// # Errors
    /// [`StoreError::Disk`] where the folder can't be used, is in use by another process, or
    /// holds a log that is damaged elsewhere than at its end.
    pub fn open(options: EmbeddedOptions) -> Result<Arc<Embedded>, StoreError> {
        let (log, engine) = log::open(&options.dir)?;
        let (created, _) = broadcast::channel(CREATED_BACKLOG);
        let state = Arc::new(Mutex::new(State::new(engine, Some(log), created.clone())));
        let keeper = Keeper::start(Arc::downgrade(&state), options.sync).map_err(|error| {
            StoreError::Disk {
                path: options.dir.display().to_string(),
                reason: format!("the thread that writes the log can't be started: {error}"),
            }
        })?;
        Ok(Arc::new(Embedded {
            store: Arc::new(Store {
                keeper: Some(keeper),
                state,
                created,
            }),
        }))
    }

    /// A store that is gone with the process.
    #[must_use]
    pub fn in_memory() -> Arc<Embedded> {
        let (created, _) = broadcast::channel(CREATED_BACKLOG);
        let state = Arc::new(Mutex::new(State::new(
            Engine::default(),
            None,
            created.clone(),
        )));
        Arc::new(Embedded {
            store: Arc::new(Store {
                keeper: None,
                state,
                created,
            }),
        })
    }

    /// Rewrites the log now, so that it holds only what is live. It happens by itself when the
    /// log has grown beyond 64 MiB and to twice the live data.
    ///
    /// # Errors
    /// [`StoreError::Disk`] where the files can't be written; the old ones are still good then.
    pub async fn compact(&self) -> Result<(), StoreError> {
        let Some(keeper) = &self.store.keeper else {
            return Ok(());
        };
        keeper.compact().await.unwrap_or_else(|_| {
            let reason = "the log couldn't be put on the disk, so it can't be rewritten; restart once the disk is well";
            Err(StoreError::Disk { path: String::new(), reason: reason.to_owned() })
        })
    }
}

/// A place in the log, up to which it has to be durable before an answer may leave.
pub(crate) type Position = u64;

impl Store {
    /// Runs something on the state, then serves whoever has waited for what it wrote. What it
    /// gives may be shown to others once the log is durable up to the position.
    pub(crate) fn run<T>(&self, work: impl FnOnce(&mut State, u64) -> T) -> (T, Position) {
        let now = now_ms();
        let mut state = self.lock();
        let before = state.position();
        state.reap(now);
        let result = work(&mut state, now);
        state.serve_blocked(now);
        let position = state.position();
        if let Some(keeper) = self.keeper.as_ref().filter(|_| position != before) {
            keeper.written(position, state.wants_compaction());
        }
        (result, position)
    }

    pub(crate) async fn durable(&self, position: Position) -> Result<(), StoreError> {
        match &self.keeper {
            Some(keeper) => keeper.durable(position).await,
            None => Ok(()),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics; were it to happen, the log still has every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time, ms since the epoch.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
