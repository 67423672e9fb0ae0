//! Reads the answers to this process's calls, and hands each to the call that waits for it.
//!
//! Every process of a site reads the site's whole stream for itself, without a group, and keeps
//! what answers its own request ids. One task owns the table of waiting calls.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use crate::entry::{self, Answer};
use crate::error::StoreError;
use crate::link::{BackOff, Link};
use crate::names::Names;
use crate::store::{Raw, Store, read_entries};

/// How long one read waits. Short enough that a dead connection is noticed while calls wait.
pub(crate) const BLOCK: Duration = Duration::from_secs(2);
/// Entries in one read: a few hundred kilobytes of ordinary commands.
const COUNT: usize = 256;
/// How often calls that nobody waits for any more are taken out of the table.
const SWEEP: Duration = Duration::from_secs(1);
/// Acknowledgement and reply; whatever else came for one call would be a copy.
pub(crate) const ANSWERS_PER_CALL: usize = 2;

/// A call that waits. Its permit bounds how many there are, and comes back when it leaves the table.
pub(crate) struct Waiting {
    pub(crate) id: String,
    pub(crate) answers: mpsc::Sender<Answer>,
    pub(crate) permit: OwnedSemaphorePermit,
}

/// What the reading task needs.
pub(crate) struct Answers {
    pub(crate) store: Store,
    pub(crate) link: Link,
    pub(crate) names: Names,
    /// The id of the last entry that came before this client.
    pub(crate) last: String,
    pub(crate) waiting: mpsc::Receiver<Waiting>,
    pub(crate) stop: CancellationToken,
}

impl Answers {
    /// Reads until told to stop. A broken connection is opened again, and reading goes on from the
    /// last entry seen, so that no answer is missed.
    pub(crate) async fn run(mut self, connection: MultiplexedConnection) {
        let mut table: HashMap<String, (mpsc::Sender<Answer>, OwnedSemaphorePermit)> =
            HashMap::new();
        let mut connection = Some(connection);
        let mut back_off = BackOff::new();
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            let last = self.last.clone();
            let mut read = Box::pin(read(
                &self.store,
                &mut connection,
                &self.names.stream,
                &last,
            ));
            let outcome = loop {
                tokio::select! {
                    biased;
                    () = self.stop.cancelled() => return,
                    Some(call) = self.waiting.recv() => { table.insert(call.id, (call.answers, call.permit)); }
                    _ = sweep.tick() => table.retain(|_, (answers, _)| !answers.is_closed()),
                    outcome = &mut read => break outcome,
                }
            };
            drop(read);
            // A call stands in the queue before its command is written: whoever has an answer in
            // what was just read is in the table now.
            while let Ok(call) = self.waiting.try_recv() {
                table.insert(call.id, (call.answers, call.permit));
            }
            match outcome {
                Ok(entries) => {
                    back_off = BackOff::new();
                    for raw in entries {
                        hand_out(&mut table, &raw, self.names.daemon.as_str());
                        self.last = raw.id;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, stream = %self.names.stream, "can't read answers; trying again");
                    if matches!(error, StoreError::Unreachable { .. }) {
                        self.link.suspect();
                    }
                    tokio::select! {
                        () = self.stop.cancelled() => return,
                        () = tokio::time::sleep(back_off.next()) => {}
                    }
                }
            }
        }
    }
}

fn hand_out(
    table: &mut HashMap<String, (mpsc::Sender<Answer>, OwnedSemaphorePermit)>,
    raw: &Raw,
    daemon: &str,
) {
    let Some(id) = entry::answers(raw) else {
        return;
    };
    let Some((answers, _)) = table.get(id) else {
        return;
    };
    let answer = entry::answer(raw, daemon);
    let last = answer.is_last();
    // Full only when a third answer came, which is a copy.
    let _ = answers.try_send(answer);
    if last {
        table.remove(id);
    }
}

/// One read over the connection, which is opened first where there is none and dropped on error.
async fn read(
    store: &Store,
    connection: &mut Option<MultiplexedConnection>,
    stream: &str,
    last: &str,
) -> Result<Vec<Raw>, StoreError> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => store.connect_to_wait(BLOCK).await?,
    };
    let value: RedisResult<Value> = redis::cmd("XREAD")
        .arg("COUNT")
        .arg(COUNT)
        .arg("BLOCK")
        .arg(BLOCK.as_millis() as u64)
        .arg("STREAMS")
        .arg(stream)
        .arg(last)
        .query_async(&mut open)
        .await;
    match value {
        Ok(value) => {
            *connection = Some(open);
            Ok(read_entries(value))
        }
        Err(error) => Err(store.error(&error)),
    }
}
