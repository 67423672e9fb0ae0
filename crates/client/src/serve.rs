//! Answers commands: reads them as one of a group, so that the processes of a site share the work
//! and what one of them had read when it died is taken up by another.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use crate::client::{now_ms, random_id};
use crate::entry::{self, Concern, text};
use crate::error::{ClientError, StoreError};
use crate::link::{BackOff, Link, WriteError};
use crate::names::Names;
use crate::store::{Raw, Store, entries, is_an_answer, read_entries};

/// How long one read waits, and so how long a stop waits for it.
const BLOCK: Duration = Duration::from_millis(500);
/// The most entries in one read.
const COUNT: usize = 64;
/// How long an answer is tried to be written before it is left to whoever takes the command up.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);

/// A command that came to this site.
#[derive(Clone)]
pub struct Command {
    id: String,
    name: String,
    params: String,
    source_site: String,
    source_node: String,
    entity: String,
    traceparent: String,
    event: bool,
}

impl Command {
    fn from_raw(raw: &Raw, event: bool) -> Command {
        let id = text(raw, &["i", "id", "request_id"]);
        Command {
            id: if id.is_empty() { raw.id.clone() } else { id },
            name: text(raw, &["c", "cmd", "command", "command_name"]),
            params: text(raw, &["p", "params", "parameters"]),
            source_site: text(raw, &["ss", "source_site", "service_id", "site_id", "st"]),
            source_node: text(raw, &["sn", "source_node", "node_id", "n"]),
            entity: text(raw, &["dn", "dest_node"]),
            traceparent: text(raw, &["tp", "traceparent"]),
            event,
        }
    }

    /// Its id, the same each time that it is delivered.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What is to be done.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parameters as they were written: JSON text, usually.
    #[must_use]
    pub fn params_text(&self) -> &str {
        &self.params
    }

    /// The parameters as a value of the program.
    ///
    /// # Errors
    /// A [`Failure`] that says what didn't fit, ready to be answered.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(&self.params)
            .map_err(|error| Failure::new("INVALID_PARAMS", error.to_string()))
    }

    /// The site that sent it, as the daemon established it.
    #[must_use]
    pub fn source_site(&self) -> &str {
        &self.source_site
    }

    /// The process that sent it, as it called itself.
    #[must_use]
    pub fn source_node(&self) -> &str {
        &self.source_node
    }

    /// The entity of this site that it is for; empty where it is for the site itself.
    #[must_use]
    pub fn entity(&self) -> &str {
        &self.entity
    }

    /// The W3C trace context; empty where there is none.
    #[must_use]
    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    /// Whether nobody waits for an answer.
    #[must_use]
    pub fn is_event(&self) -> bool {
        self.event
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("source_site", &self.source_site)
            .finish_non_exhaustive()
    }
}

/// Why a command couldn't be carried out, as it is told to the sender.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    /// A word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

impl Failure {
    /// A failure.
    #[must_use]
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure {
            code: code.into(),
            message: message.into(),
        }
    }
}

/// A service that isn't started yet.
#[derive(Clone)]
pub struct Serve {
    link: Link,
    store: Store,
    names: Names,
    node: String,
    group: String,
    concurrency: usize,
    claim_after: Duration,
}

impl std::fmt::Debug for Serve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serve")
            .field("stream", &self.names.stream)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

impl Serve {
    pub(crate) fn new(link: Link, store: Store, names: Names, node: String) -> Serve {
        Serve {
            link,
            store,
            names,
            node,
            group: "service".to_owned(),
            concurrency: 64,
            claim_after: Duration::from_secs(60),
        }
    }

    /// The group that the processes of this site read as; `service` unless changed.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Serve {
        self.group = group.into();
        self
    }

    /// How many commands are worked on at once; 64 unless changed. No more are read.
    #[must_use]
    pub fn concurrency(mut self, commands: usize) -> Serve {
        self.concurrency = commands.clamp(1, 1 << 16);
        self
    }

    /// After how long a command that another process read and didn't settle is taken over; 60 s
    /// unless changed, and the same in all processes of a site. A handler may take half of this;
    /// then it is stopped and the sender told `TIMEOUT`, so that no command is worked on twice.
    #[must_use]
    pub fn claim_after(mut self, idle: Duration) -> Serve {
        self.claim_after = idle.max(Duration::from_millis(100));
        self
    }

    /// Starts to read commands and to answer each with what `handler` makes of it.
    ///
    /// # Errors
    /// [`ClientError`] when the group can't be made or the store can't be reached.
    pub async fn start<H, F, R>(self, handler: H) -> Result<Serving, ClientError>
    where
        H: Fn(Command) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Serialize + Send + 'static,
    {
        make_group(&self.link, &self.names, &self.group).await?;
        let connection = self.store.connect_to_wait(BLOCK).await?;
        let consumer = format!(
            "{}-{}",
            self.node,
            random_id()?.get(..12).unwrap_or_default()
        );
        let stop = CancellationToken::new();
        let worker = Worker {
            permits: Arc::new(Semaphore::new(self.concurrency)),
            consumer,
            handler: Arc::new(handler),
            running: JoinSet::new(),
            held: HashSet::new(),
            stop: stop.clone(),
            serve: self,
        };
        let guard = stop.clone().drop_guard();
        let task = tokio::spawn(worker.run(connection));
        Ok(Serving {
            stop,
            task,
            _guard: guard,
        })
    }
}

/// A service that runs. It ends when this is dropped; [`Serving::stop`] waits for that.
#[derive(Debug)]
pub struct Serving {
    stop: CancellationToken,
    task: JoinHandle<()>,
    _guard: DropGuard,
}

impl Serving {
    /// Reads no more, finishes and answers what is being worked on, and ends.
    pub async fn stop(self) {
        self.stop.cancel();
        // An error here is a panic of ours; the task has ended either way.
        let _ = self.task.await;
    }
}

struct Worker<H> {
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
    async fn run(mut self, connection: MultiplexedConnection) {
        let mut connection = Some(connection);
        let mut back_off = BackOff::new();
        let mut claim_at = Instant::now();
        // After a broken connection: what was given to us, but never came.
        let mut look_back = false;
        while !self.stop.is_cancelled() {
            let Some(first) = self.room().await else {
                break;
            };
            let step = if look_back {
                self.read(&mut connection, "0").await
            } else if Instant::now() >= claim_at {
                claim_at = Instant::now() + self.serve.claim_after / 2;
                self.claim(&mut connection).await
            } else {
                self.read(&mut connection, ">").await
            };
            match step {
                Ok(found) => {
                    back_off = BackOff::new();
                    look_back = false;
                    self.take_up(found, first).await;
                }
                Err(error) => {
                    drop(first);
                    tracing::warn!(%error, stream = %self.serve.names.stream, "can't read commands; trying again");
                    look_back = true;
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
            let event = match entry::concern(&raw) {
                Concern::Nothing => {
                    passed.push(raw.id);
                    continue;
                }
                Concern::Event => true,
                Concern::Command => false,
            };
            let permit = match first.take() {
                Some(permit) => permit,
                None => match self.permits.clone().acquire_owned().await {
                    Ok(permit) => permit,
                    Err(_) => return,
                },
            };
            self.held.insert(raw.id.clone());
            let answering = Answering {
                serve: self.serve.clone(),
                entry: raw.id.clone(),
            };
            let command = Command::from_raw(&raw, event);
            let handler = self.handler.clone();
            self.running.spawn(async move {
                let entry = answering.entry.clone();
                answering.answer(command, handler).await;
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
            if let Err(error) = self
                .serve
                .link
                .run(&write, Instant::now() + SETTLE_WITHIN)
                .await
            {
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

/// One command on its way to its answer.
struct Answering {
    serve: Serve,
    entry: String,
}

impl Answering {
    async fn answer<H, F, R>(self, command: Command, handler: Arc<H>)
    where
        H: Fn(Command) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Serialize + Send + 'static,
    {
        let (id, event) = (command.id.clone(), command.event);
        // In a task of its own, so that a panic in it is an answer and not the end of the service.
        let work = AbortOnDropHandle::new(tokio::spawn(async move { handler(command).await }));
        let limit = self.serve.claim_after / 2;
        let outcome = match tokio::time::timeout(limit, work).await {
            Ok(Ok(Ok(result))) => serde_json::to_string(&result).map_err(|error| {
                Failure::new(
                    "INTERNAL",
                    format!("the result can't be written as JSON: {error}"),
                )
            }),
            Ok(Ok(Err(failure))) => Err(failure),
            Ok(Err(_)) => Err(Failure::new(
                "INTERNAL",
                "the service failed while it worked on this",
            )),
            Err(_) => Err(Failure::new(
                "TIMEOUT",
                format!("the service took longer than {limit:?}"),
            )),
        };
        let write = self.settlement(&id, event, &outcome);
        self.settle(&write).await;
    }

    /// The answer and the acknowledgement, in that order: a crash between them answers twice, and
    /// the daemon carries the first answer alone. The other way round would answer never.
    fn settlement(&self, id: &str, event: bool, outcome: &Result<String, Failure>) -> Pipeline {
        let mut write = Pipeline::new();
        if !event {
            let ts = now_ms().to_string();
            let mut fields = vec![
                ("t", "r"),
                ("ri", id),
                ("ss", self.serve.names.site.as_str()),
                ("sn", self.serve.node.as_str()),
                ("ts", ts.as_str()),
            ];
            match outcome {
                Ok(result) => fields.extend([("st", "ok"), ("r", result)]),
                Err(Failure { code, message }) => {
                    fields.extend([("st", "error"), ("e", message.as_str()), ("_ec", code)]);
                }
            }
            write
                .cmd("XADD")
                .arg(&*self.serve.names.stream)
                .arg("*")
                .arg(&fields);
        }
        write
            .cmd("XACK")
            .arg(&*self.serve.names.stream)
            .arg(&self.serve.group)
            .arg(&self.entry);
        write
    }

    async fn settle(&self, write: &Pipeline) {
        let by = Instant::now() + SETTLE_WITHIN.min(self.serve.claim_after / 2);
        let mut back_off = BackOff::new();
        loop {
            match self.serve.link.run(write, by).await {
                Ok(_) => return,
                Err(WriteError::Undone(error) | WriteError::Unknown(error)) => {
                    if Instant::now() >= by {
                        tracing::error!(%error, entry = %self.entry, "couldn't answer a command; it stays pending");
                        return;
                    }
                    tracing::warn!(%error, entry = %self.entry, "couldn't answer a command; trying again");
                    tokio::time::sleep(back_off.next()).await;
                }
            }
        }
    }
}

async fn make_group(link: &Link, names: &Names, group: &str) -> Result<(), StoreError> {
    let mut write = Pipeline::new();
    write
        .cmd("XGROUP")
        .arg("CREATE")
        .arg(&*names.stream)
        .arg(group)
        .arg("0")
        .arg("MKSTREAM");
    match link
        .run(&write, Instant::now() + Duration::from_secs(10))
        .await
    {
        Ok(_) => Ok(()),
        Err(WriteError::Undone(StoreError::Refused { reason, .. }))
            if reason.starts_with("BUSYGROUP") =>
        {
            Ok(())
        }
        Err(error) => Err(error.into_store()),
    }
}
