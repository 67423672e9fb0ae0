//! The connection for writing. One task owns it and opens it again when it breaks; whoever writes
//! borrows it, and is told whether the write is known not to have happened.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::StoreError;
use crate::store::{Store, is_an_answer};

/// First pause before connecting again, and the longest.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Pauses that double and are spread by chance, so that many clients don't come back at once.
#[derive(Debug)]
pub(crate) struct BackOff(Duration);

impl BackOff {
    pub(crate) fn new() -> BackOff {
        BackOff(BACK_OFF.0)
    }

    /// The next pause, between half of its step and the whole of it.
    pub(crate) fn next(&mut self) -> Duration {
        let step = self.0;
        self.0 = step.saturating_mul(2).min(BACK_OFF.1);
        let spread = u32::from(getrandom::u32().unwrap_or(0) as u8);
        step / 2 + step / 2 * spread / 255
    }
}

#[derive(Clone)]
struct Live {
    generation: u64,
    connection: MultiplexedConnection,
}

/// A write that has no good answer.
#[derive(Debug, Clone)]
pub(crate) enum WriteError {
    /// It was certainly not carried out.
    Undone(StoreError),
    /// It may have been.
    Unknown(StoreError),
}

impl WriteError {
    pub(crate) fn into_store(self) -> StoreError {
        match self {
            WriteError::Undone(error) | WriteError::Unknown(error) => error,
        }
    }
}

/// Writes to the store over whatever connection there is.
#[derive(Clone)]
pub(crate) struct Link {
    store: Store,
    live: watch::Receiver<Option<Live>>,
    broken: mpsc::Sender<u64>,
}

impl Link {
    /// A link over `connection`, and the task that keeps it; the task ends with `stop`.
    pub(crate) fn new(
        store: Store,
        connection: MultiplexedConnection,
        stop: CancellationToken,
    ) -> (Link, impl Future<Output = ()> + Send + 'static) {
        let (set_live, live) = watch::channel(Some(Live {
            generation: 0,
            connection,
        }));
        // One report is enough: the task reads it, and finds the connection replaced or not.
        let (broken, reports) = mpsc::channel(1);
        let task = keep(store.clone(), set_live, reports, stop);
        (
            Link {
                store,
                live,
                broken,
            },
            task,
        )
    }

    /// Runs commands in one write and gives their answers; waits for a connection until `by`.
    /// An error of the store in any of them is an error of the whole.
    pub(crate) async fn run(
        &self,
        commands: &Pipeline,
        by: Instant,
    ) -> Result<Vec<Value>, WriteError> {
        let Live {
            generation,
            mut connection,
        } = self.connection(by).await.map_err(WriteError::Undone)?;
        match commands.query_async(&mut connection).await {
            Ok(values) => Ok(values),
            Err(error) => {
                let told = self.store.error(&error);
                if is_an_answer(&error) {
                    Err(WriteError::Undone(told))
                } else {
                    // A full channel holds a report already.
                    let _ = self.broken.try_send(generation);
                    Err(WriteError::Unknown(told))
                }
            }
        }
    }

    async fn connection(&self, by: Instant) -> Result<Live, StoreError> {
        let mut live = self.live.clone();
        match tokio::time::timeout_at(by, live.wait_for(Option::is_some)).await {
            Ok(Ok(found)) => found
                .clone()
                .ok_or_else(|| self.store.unreachable("not connected")),
            Ok(Err(_)) => Err(self.store.unreachable("the client was closed")),
            Err(_) => Err(self.store.unreachable("no connection in time")),
        }
    }

    /// Says that the store was seen to go away, so that the next write doesn't have to find out.
    pub(crate) fn suspect(&self) {
        if let Some(generation) = self.live.borrow().as_ref().map(|live| live.generation) {
            let _ = self.broken.try_send(generation);
        }
    }
}

async fn keep(
    store: Store,
    live: watch::Sender<Option<Live>>,
    mut reports: mpsc::Receiver<u64>,
    stop: CancellationToken,
) {
    let mut generation = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            report = reports.recv() => match report {
                Some(which) if which == generation => {}
                Some(_) => continue,
                None => return,
            },
        }
        live.send_replace(None);
        generation += 1;
        let mut back_off = BackOff::new();
        loop {
            let opened = tokio::select! {
                () = stop.cancelled() => return,
                opened = store.connect() => opened,
            };
            match opened {
                Ok(connection) => {
                    live.send_replace(Some(Live {
                        generation,
                        connection,
                    }));
                    break;
                }
                Err(error) => tracing::debug!(%error, "connecting again"),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(back_off.next()) => {}
            }
        }
    }
}
