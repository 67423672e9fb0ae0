//! The task that reads commands.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::answering::Answering;
use crate::batch::Batch;
use crate::command::{Command, Failure};
use crate::entry::{self, Concern};
use crate::error::StoreError;
use crate::link::BackOff;
use crate::serve::{Serve, make_group};
use crate::store::{Raw, entries, is_an_answer, read_entries};

/// How long one read waits, and so how long a stop waits for it.
pub(crate) const BLOCK: Duration = Duration::from_millis(500);
/// The most entries in one read.
const COUNT: usize = 64;
/// How long a write that can be made up for later is tried.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads commands for one service, hands each to a task, and keeps count of them.
pub(crate) struct Worker<H> {
    serve: Serve,
    consumer: String,
    handler: Arc<H>,
    permits: Arc<Semaphore>,
    running: JoinSet<String>,
    /// Entries that are being worked on; they are pending, and mustn't be taken up again.
    held: HashSet<String>,
    stop: CancellationToken,
}

impl<H, F, R> Worker<H>
where
    H: Fn(Command) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, Failure>> + Send + 'static,
    R: Serialize + Send + 'static,
{
    pub(crate) fn new(
        serve: Serve,
        consumer: String,
        permits: Arc<Semaphore>,
        handler: H,
        stop: CancellationToken,
    ) -> Worker<H> {
        Worker {
            serve,
            consumer,
            handler: Arc::new(handler),
            permits,
            running: JoinSet::new(),
            held: HashSet::new(),
            stop,
        }
    }

    /// Reads until told to stop, and ends when all that was begun is answered.
    pub(crate) async fn run(mut self, connection: MultiplexedConnection) {
        let mut connection = Some(connection);
        let mut back_off = BackOff::new();
        let mut claim_at = Instant::now();
        // After a broken connection: the entry after which to look for what was given to us, but
        // never came. It may be more than can be worked on at once, so it is looked through to its end.
        let mut look_back: Option<String> = None;
        while !self.stop.is_cancelled() {
            let Some(first) = self.room().await else {
                break;
            };
            let looking_back = look_back.is_some();
            let step = if let Some(after) = &look_back {
                self.read(&mut connection, after).await
            } else if Instant::now() >= claim_at {
                claim_at = Instant::now() + self.serve.claim_after / 2;
                self.claim(&mut connection).await
            } else {
                self.read(&mut connection, ">").await
            };
            match step {
                Ok(found) => {
                    back_off = BackOff::new();
                    if looking_back {
                        look_back = found.last().map(|raw| raw.id.clone());
                    }
                    self.take_up(found, first).await;
                }
                Err(error) => {
                    drop(first);
                    tracing::warn!(%error, stream = %self.serve.names.stream, "can't read commands; trying again");
                    look_back = Some("0".to_owned());
                    tokio::select! {
                        () = self.stop.cancelled() => {}
                        () = tokio::time::sleep(back_off.next()) => {}
                    }
                    self.remake_group(&error).await;
                }
            }
        }
        while let Some(done) = self.running.join_next().await {
            self.forget(done.ok());
        }
        self.leave().await;
    }

    /// Waits until one more command may be worked on; `None` when told to stop.
    async fn room(&mut self) -> Option<OwnedSemaphorePermit> {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                Some(done) = self.running.join_next() => self.forget(done.ok()),
                permit = self.permits.clone().acquire_owned() => return permit.ok(),
            }
        }
    }

    fn forget(&mut self, done: Option<String>) {
        if let Some(id) = done {
            self.held.remove(&id);
        }
    }

    /// Works on what was read, and takes off the list at once what is none of our business.
    async fn take_up(&mut self, found: Vec<Raw>, first: OwnedSemaphorePermit) {
        let mut first = Some(first);
        let mut passed = Vec::new();
        for raw in found {
            if self.held.contains(&raw.id) {
                continue;
            }
            let concern = entry::concern(&raw);
            if concern == Concern::Nothing {
                passed.push(raw.id);
                continue;
            }
            let permit = match first.take() {
                Some(permit) => permit,
                None => match self.permits.clone().acquire_owned().await {
                    Ok(permit) => permit,
                    Err(_) => return,
                },
            };
            self.held.insert(raw.id.clone());
            let answering = Answering::new(self.serve.clone(), raw.id.clone());
            let handler = self.handler.clone();
            self.running.spawn(async move {
                let entry = match concern {
                    Concern::Batch => {
                        let batch = Batch::from_raw(&raw);
                        answering.answer_batch(batch, handler).await
                    }
                    _ => {
                        let command = Command::from_raw(&raw, concern == Concern::Event);
                        answering.answer(command, handler).await
                    }
                };
                drop(permit);
                entry
            });
        }
        if !passed.is_empty() {
            let mut write = Pipeline::new();
            write
                .cmd("XACK")
                .arg(&*self.serve.names.stream)
                .arg(&self.serve.group)
                .arg(&passed);
            if let Err(error) = self.serve.link.run(&write, Instant::now() + PATIENCE).await {
                // They stay pending, and are passed over again later.
                tracing::debug!(error = %error.into_store(), "couldn't acknowledge what isn't for us");
            }
        }
    }

    async fn read(
        &self,
        connection: &mut Option<MultiplexedConnection>,
        from: &str,
    ) -> Result<Vec<Raw>, StoreError> {
        let mut command = redis::cmd("XREADGROUP");
        command
            .arg("GROUP")
            .arg(&self.serve.group)
            .arg(&self.consumer)
            .arg("COUNT")
            .arg(self.count());
        if from == ">" {
            command.arg("BLOCK").arg(BLOCK.as_millis() as u64);
        }
        command
            .arg("STREAMS")
            .arg(&*self.serve.names.stream)
            .arg(from);
        self.ask(connection, &command).await.map(read_entries)
    }

    /// No more than can be worked on at once: what waits here could be taken for abandoned. One
    /// place is held by whoever reads.
    fn count(&self) -> usize {
        self.permits
            .available_permits()
            .saturating_add(1)
            .min(COUNT)
    }

    /// Takes over what another process read and didn't settle for too long.
    async fn claim(
        &self,
        connection: &mut Option<MultiplexedConnection>,
    ) -> Result<Vec<Raw>, StoreError> {
        let mut command = redis::cmd("XAUTOCLAIM");
        command
            .arg(&*self.serve.names.stream)
            .arg(&self.serve.group)
            .arg(&self.consumer)
            .arg(self.serve.claim_after.as_millis() as u64)
            .arg("0-0")
            .arg("COUNT")
            .arg(self.count());
        let value = self.ask(connection, &command).await?;
        let Value::Array(parts) = value else {
            return Ok(Vec::new());
        };
        Ok(parts.into_iter().nth(1).map(entries).unwrap_or_default())
    }

    async fn ask(
        &self,
        connection: &mut Option<MultiplexedConnection>,
        command: &redis::Cmd,
    ) -> Result<Value, StoreError> {
        let mut open = match connection.take() {
            Some(open) => open,
            None => self.serve.store.connect_to_wait(BLOCK).await?,
        };
        match command.query_async(&mut open).await {
            Ok(value) => {
                *connection = Some(open);
                Ok(value)
            }
            Err(error) => {
                if is_an_answer(&error) {
                    *connection = Some(open);
                }
                Err(self.serve.store.error(&error))
            }
        }
    }

    /// A store that was emptied has lost the group as well.
    async fn remake_group(&self, error: &StoreError) {
        if matches!(error, StoreError::Refused { reason, .. } if reason.starts_with("NOGROUP"))
            && let Err(error) =
                make_group(&self.serve.link, &self.serve.names, &self.serve.group).await
        {
            tracing::warn!(%error, "couldn't make the group again");
        }
    }

    /// Takes this process's name off the group's list, unless something is still pending under it.
    /// Where the store doesn't know how, the name stays; it does no harm.
    async fn leave(&self) {
        let (stream, group) = (&*self.serve.names.stream, &self.serve.group);
        let by = Instant::now() + Duration::from_secs(2);
        let mut ask = Pipeline::new();
        ask.cmd("XPENDING")
            .arg(stream)
            .arg(group)
            .arg("-")
            .arg("+")
            .arg(1)
            .arg(&self.consumer);
        let pending = self.serve.link.run(&ask, by).await;
        let nothing = matches!(&pending, Ok(values) if matches!(values.first(), Some(Value::Array(list)) if list.is_empty()));
        if nothing {
            let mut write = Pipeline::new();
            write
                .cmd("XGROUP")
                .arg("DELCONSUMER")
                .arg(stream)
                .arg(group)
                .arg(&self.consumer);
            let _ = self.serve.link.run(&write, by).await;
        }
    }
}
