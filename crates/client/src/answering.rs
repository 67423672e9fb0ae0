//! One command, from the handler to its answer on the stream.

use std::sync::Arc;
use std::time::Duration;

use redis::Pipeline;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

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
        self.entry
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
