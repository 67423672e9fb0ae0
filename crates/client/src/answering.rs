//! One command, from the handler to its answer on the stream.

use std::sync::Arc;
use std::time::Duration;

use redis::Pipeline;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::batch::{Answers, Batch};
use crate::client::now_ms;
use crate::command::{Command, Failure};
use crate::link::{BackOff, WriteError};
use crate::serve::Serve;

/// How long an answer is tried to be written before it is left to whoever takes the command up.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);

/// One command on its way to its answer.
pub(crate) struct Answering {
    serve: Serve,
    entry: String,
}

impl Answering {
    pub(crate) fn new(serve: Serve, entry: String) -> Answering {
        Answering { serve, entry }
    }

    /// Has the command carried out, answers it and takes it off the list; gives the entry's id.
    pub(crate) async fn answer<H, F, R>(self, command: Command, handler: Arc<H>) -> String
    where
        H: Fn(Command) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Serialize + Send + 'static,
    {
        let (id, event) = (command.id().to_owned(), command.is_event());
        let limit = self.serve.claim_after / 2;
        let outcome = carry_out(command, &handler, limit)
            .await
            .map(|result| result.get().to_owned());
        let kind = (!event).then_some("r");
        self.settle(&self.settlement(&id, kind, &outcome)).await;
        self.entry
    }

    /// The same with each command of a batch, one after the other, and one answer to all.
    pub(crate) async fn answer_batch<H, F, R>(self, batch: Batch, handler: Arc<H>) -> String
    where
        H: Fn(Command) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Serialize + Send + 'static,
    {
        let by = Instant::now() + self.serve.claim_after / 2;
        let (id, items) = batch.into_parts();
        let outcome = match items {
            Ok(items) => {
                let mut answers = Answers::default();
                for item in items {
                    let left = by.saturating_duration_since(Instant::now());
                    let outcome = carry_out(item.command, &handler, left).await;
                    answers.push(item.id.as_deref(), outcome);
                }
                answers.into_text()
            }
            Err(failure) => Err(failure),
        };
        self.settle(&self.settlement(&id, Some("br"), &outcome))
            .await;
        self.entry
    }

    /// The answer and the acknowledgement, in that order: a crash between them answers twice, and
    /// the daemon carries the first answer alone. The other way round would answer never.
    ///
    /// Of no kind is the answer that nobody waits for.
    fn settlement(
        &self,
        id: &str,
        kind: Option<&str>,
        outcome: &Result<String, Failure>,
    ) -> Pipeline {
        let mut write = Pipeline::new();
        if let Some(kind) = kind {
            let ts = now_ms().to_string();
            let mut fields = vec![
                ("t", kind),
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

/// Has one command carried out within `limit`, in a task of its own, so that a panic in it is an
/// answer and not the end of the service.
async fn carry_out<H, F, R>(
    command: Command,
    handler: &Arc<H>,
    limit: Duration,
) -> Result<Box<RawValue>, Failure>
where
    H: Fn(Command) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, Failure>> + Send + 'static,
    R: Serialize + Send + 'static,
{
    let late = || {
        Failure::new(
            "TIMEOUT",
            "the service took too long; what it had begun was stopped",
        )
    };
    if limit.is_zero() {
        return Err(late());
    }
    let handler = Arc::clone(handler);
    let work = AbortOnDropHandle::new(tokio::spawn(async move { handler(command).await }));
    match tokio::time::timeout(limit, work).await {
        Ok(Ok(Ok(result))) => to_raw_value(&result).map_err(|error| {
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
        Err(_) => Err(late()),
    }
}
