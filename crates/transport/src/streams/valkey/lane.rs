//! One connection that waits for entries of some streams.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until};

use super::connection::{ANSWER_DEADLINE, Connection};
use super::cursors::{Command, Cursors};
use super::dial::unreachable;
use super::entries::{Answer, AnswerBuilder, Limits};
use super::frame::{Frame, FrameBuilder};
use crate::streams::{ReaderOptions, StoreError};

/// Between attempts to end a wait that the store may not have begun yet.
const UNBLOCK_PAUSE: Duration = Duration::from_millis(5);

/// What is wrong with an answer that comes without a read in flight.
const UNASKED: &[u8] = b"ERR an answer came that nobody asked for";

/// Some streams, the place in each, the connection they are read over while there is one, and the
/// read in flight while there is one.
#[derive(Default)]
pub(crate) struct Lane {
    pub(crate) cursors: Cursors,
    pub(crate) connection: Option<Connection>,
    flight: Option<Flight>,
    /// The read in flight is for other streams than those assigned now.
    pub(crate) reassigned: bool,
}

/// A read whose answer hasn't come.
struct Flight {
    builder: AnswerBuilder,
    deadline: Instant,
    waits: bool,
    serial: u64,
}

/// What a lane heard.
pub(crate) enum Heard {
    /// An answer, and the assignment that its read was for.
    Answer(Answer, u64),
    /// A watched key changed; the read is still in flight.
    Change,
}

impl Lane {
    pub(crate) fn connection(&mut self, at: &Arc<str>) -> Result<&mut Connection, StoreError> {
        self.connection
            .as_mut()
            .ok_or_else(|| unreachable(at, "the connection is gone"))
    }

    pub(crate) fn is_flying(&self) -> bool {
        self.flight.is_some()
    }

    /// When the store must have answered.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.flight.as_ref().map(|flight| flight.deadline)
    }

    /// Forgets the connection and the read in flight, and goes back to the oldest pending entries.
    pub(crate) fn lose(&mut self) {
        self.connection = None;
        self.flight = None;
        self.reassigned = false;
        self.cursors.rewind();
    }

    /// Sends the next read, if there is a stream to read. Not to be dropped midway.
    pub(crate) async fn launch(
        &mut self,
        options: &ReaderOptions,
        at: &Arc<str>,
    ) -> Result<(), StoreError> {
        let block = match self.cursors.next_return() {
            Some(back) => options
                .block
                .min(back.saturating_duration_since(Instant::now())),
            None => options.block,
        };
        match self.cursors.command(options, block) {
            Some(command) => self.fly(command, options, at).await,
            None => Ok(()),
        }
    }

    /// Sends the next read if it is certain what it will be. Not to be dropped midway.
    pub(crate) async fn launch_ahead(
        &mut self,
        options: &ReaderOptions,
        at: &Arc<str>,
    ) -> Result<(), StoreError> {
        match self.cursors.ahead() {
            Some(command) if !self.is_flying() && !self.reassigned => {
                self.fly(command, options, at).await
            }
            _ => Ok(()),
        }
    }

    async fn fly(
        &mut self,
        command: Command,
        options: &ReaderOptions,
        at: &Arc<str>,
    ) -> Result<(), StoreError> {
        self.connection(at)?.send(command.pieces).await?;
        self.reassigned = false;
        self.flight = Some(Flight {
            builder: AnswerBuilder::new(Limits {
                bytes: options.max_entry_bytes,
                fields: options.max_fields,
            }),
            deadline: Instant::now() + options.block + ANSWER_DEADLINE,
            waits: command.waits,
            serial: command.serial,
        });
        Ok(())
    }

    /// Whether the read in flight has its answer, or something changed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Heard, StoreError>> {
        let Some(connection) = &mut self.connection else {
            return Poll::Pending;
        };
        let Some(flight) = &mut self.flight else {
            // Nothing was asked, but the store may have something to tell.
            return match ready!(connection.poll_hear(cx, &mut FrameBuilder::default()))? {
                None => Poll::Ready(Ok(Heard::Change)),
                Some(_) => Poll::Ready(Err(connection.refused("XREADGROUP", UNASKED))),
            };
        };
        match ready!(connection.poll_hear(cx, &mut flight.builder))? {
            Some(answer) => {
                let serial = flight.serial;
                self.flight = None;
                Poll::Ready(Ok(Heard::Answer(answer, serial)))
            }
            None => Poll::Ready(Ok(Heard::Change)),
        }
    }

    /// Ends the wait of the read in flight, over the connection that doesn't wait, and gives its
    /// answer; `None` when there is none in flight. Not to be dropped midway.
    pub(crate) async fn land(
        &mut self,
        settle: &mut Connection,
        at: &Arc<str>,
    ) -> Result<Option<(Answer, u64)>, StoreError> {
        let number = self.connection(at)?.id.to_string();
        let mut pause = Duration::ZERO;
        while let Some(flight) = &self.flight {
            let (deadline, waits) = (flight.deadline, flight.waits);
            tokio::select! {
                biased;
                heard = std::future::poll_fn(|cx| self.poll(cx)) => {
                    if let Heard::Answer(answer, serial) = heard? {
                        return Ok(Some((answer, serial)));
                    }
                }
                () = sleep(pause), if waits => {
                    let unblocked = settle.ask(&[b"CLIENT", b"UNBLOCK", number.as_bytes(), b"TIMEOUT"]).await?;
                    // Zero: it doesn't wait yet. An error: it can't be ended, and ends by itself.
                    if let Some(flight) = &mut self.flight {
                        flight.waits = unblocked == Frame::Integer(0);
                    }
                    pause = UNBLOCK_PAUSE;
                }
                () = sleep_until(deadline.into()) => return Err(overdue(at)),
            }
        }
        Ok(None)
    }
}

/// A read that should have been answered.
pub(crate) fn overdue(at: &str) -> StoreError {
    unreachable(
        at,
        format!("it didn't answer a read within {ANSWER_DEADLINE:?} after its wait was over"),
    )
}
