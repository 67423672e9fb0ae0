//! Reading as a group's consumer, and settling what was read.
//!
//! A reader has two connections. One has a read in flight nearly all the time; it is sent as soon
//! as the settlements of the read before are on their way, so that the store works while its
//! answer travels. The other settles. When either breaks both are given up, and everything is read
//! again from the oldest pending entry: what a lost answer held comes again, in order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until};

use super::backoff::{Backoff, spread};
use super::connection::ANSWER_DEADLINE;
use super::cursors::{Command, Cursors};
use super::dial::{Dialer, unreachable};
use super::entries::{Answer, AnswerBuilder, Limits};
use super::frame::{Frame, FrameBuilder};
use super::session::{Former, Session, load};
use super::settle::{Outcome, Plan, Settler, enter};
use crate::streams::{
    Batch, Fence, GroupReader, Interrupt, Key, Read, ReaderOptions, Settled, Settlement, StoreError,
};

mod groups;
mod handover;

/// Reads in one call that end in putting groups in order instead of in entries.
const MAX_TURNS: usize = 4;
/// Between attempts to end a wait that the store may not have begun yet.
const UNBLOCK_PAUSE: Duration = Duration::from_millis(5);
/// How often a change is assumed where the store can't tell of changes.
const ASSUMED_CHANGE: Duration = Duration::from_secs(1);

/// A reader of one Valkey or Redis server.
pub(crate) struct ValkeyReader {
    dialer: Arc<Dialer>,
    options: ReaderOptions,
    /// What the store's list of connections calls this reader; no other has the name.
    name: String,
    cursors: Cursors,
    session: Option<Session>,
    flight: Option<Flight>,
    /// The read in flight is for other streams than those assigned now.
    reassigned: bool,
    /// Pending entries are to be given again.
    rewound: bool,
    /// Something was sent whose answer hasn't been awaited: if that is still so at the next call,
    /// the caller dropped the one before, and the connections are no longer in step.
    midway: bool,
    /// What the next batch will tell.
    report: Batch,
    former: Option<Former>,
    backoff: Backoff,
    retry_at: Option<Instant>,
    change_assumed: Option<Instant>,
    interrupt: Arc<Notify>,
}

/// A read whose answer hasn't come.
struct Flight {
    builder: AnswerBuilder,
    deadline: Instant,
    waits: bool,
    serial: u64,
}

enum Landed {
    Answer(Answer, u64),
    /// A watched key changed; the read is still in flight.
    Changed,
}

impl ValkeyReader {
    pub(crate) fn new(dialer: Arc<Dialer>, options: ReaderOptions) -> ValkeyReader {
        ValkeyReader {
            dialer,
            options,
            name: format!("crossway-reader-{:016x}", spread()),
            cursors: Cursors::default(),
            session: None,
            flight: None,
            reassigned: false,
            rewound: false,
            midway: false,
            report: Batch::default(),
            former: None,
            backoff: Backoff::default(),
            retry_at: None,
            change_assumed: None,
            interrupt: Arc::new(Notify::new()),
        }
    }

    fn session(&mut self) -> Result<&mut Session, StoreError> {
        match &mut self.session {
            Some(session) => Ok(session),
            None => Err(unreachable(&self.dialer.at, "the connection is gone")),
        }
    }

    async fn connected(&mut self) -> Result<(), StoreError> {
        if self.midway {
            self.lost();
        }
        if self.session.is_some() {
            return Ok(());
        }
        if let Some(at) = self.retry_at {
            sleep_until(at.into()).await;
        }
        let session =
            Session::open(&self.dialer, &self.name, &self.options.watched, self.former).await?;
        if !session.tells_changes && self.change_assumed.is_none() {
            tracing::warn!(
                store = %self.dialer.at,
                "the store doesn't tell of changed keys (CLIENT TRACKING); they are read again every second"
            );
        }
        self.change_assumed = Some(Instant::now());
        self.former = None;
        // Whatever happened while nobody listened.
        self.report.changed = true;
        self.session = Some(session);
        Ok(())
    }

    /// Gives up both connections; the next call connects again.
    fn lost(&mut self) {
        if let Some(session) = self.session.take() {
            self.former = Some(session.former());
        }
        self.flight = None;
        self.midway = false;
        self.rewound = false;
        self.cursors.rewind();
        self.retry_at = Some(Instant::now() + self.backoff.next(spread()));
    }

    async fn turns(&mut self) -> Result<Batch, StoreError> {
        self.connected().await?;
        for _ in 0..MAX_TURNS {
            if self.flight.is_none() {
                self.make_groups().await?;
                if !self.report.remade.is_empty() || !self.report.not_streams.is_empty() {
                    break;
                }
                if !self.launch().await? {
                    self.idle().await?;
                    break;
                }
            }
            match self.land().await? {
                Landed::Changed => break,
                Landed::Answer(answer, serial) => {
                    if std::mem::take(&mut self.rewound) {
                        // What it holds is pending, and comes again in its turn.
                        self.cursors.rewind();
                    } else if let Some(entries) = self.understand(answer, serial).await? {
                        self.backoff.reset();
                        return Ok(self.batch(entries));
                    }
                }
            }
        }
        Ok(self.batch(Vec::new()))
    }

    /// Sends the next read; `false` when there is no stream to read.
    async fn launch(&mut self) -> Result<bool, StoreError> {
        if std::mem::take(&mut self.rewound) {
            self.cursors.rewind();
        }
        let block = match self.cursors.next_return() {
            Some(at) => self
                .options
                .block
                .min(at.saturating_duration_since(Instant::now())),
            None => self.options.block,
        };
        match self.cursors.command(&self.options, block) {
            Some(command) => self.fly(command).await.map(|()| true),
            None => Ok(false),
        }
    }

    async fn fly(&mut self, command: Command) -> Result<(), StoreError> {
        let midway = std::mem::replace(&mut self.midway, true);
        self.session()?.read.send(command.pieces).await?;
        self.midway = midway;
        self.reassigned = false;
        let limits = Limits {
            bytes: self.options.max_entry_bytes,
            fields: self.options.max_fields,
        };
        self.flight = Some(Flight {
            builder: AnswerBuilder::new(limits),
            deadline: Instant::now() + self.options.block + ANSWER_DEADLINE,
            waits: command.waits,
            serial: command.serial,
        });
        Ok(())
    }

    /// Waits for the answer of the read in flight. The wait is ended at once when somebody
    /// interrupts, or when what is waited for isn't what is wanted any more.
    async fn land(&mut self) -> Result<Landed, StoreError> {
        let mut hurry = self.reassigned || self.rewound;
        let mut pause = Duration::ZERO;
        let ValkeyReader {
            session,
            flight,
            interrupt,
            midway,
            dialer,
            ..
        } = self;
        let (Some(session), Some(flying)) = (session, flight.as_mut()) else {
            return Err(unreachable(&dialer.at, "the connection is gone"));
        };
        let mut waits = flying.waits;
        loop {
            tokio::select! {
                biased;
                heard = session.read.hear(&mut flying.builder) => match heard? {
                    Some(answer) => {
                        let serial = flying.serial;
                        *flight = None;
                        return Ok(Landed::Answer(answer, serial));
                    }
                    None if hurry => {}
                    None => return Ok(Landed::Changed),
                },
                () = interrupt.notified(), if !hurry => hurry = true,
                () = sleep(pause), if hurry && waits => {
                    *midway = true;
                    let number = session.read.id.to_string();
                    let unblocked = session.settle.ask(&[b"CLIENT", b"UNBLOCK", number.as_bytes(), b"TIMEOUT"]).await?;
                    *midway = false;
                    // Zero: it doesn't wait yet. An error: it can't be ended, and ends by itself.
                    waits = unblocked == Frame::Integer(0);
                    pause = UNBLOCK_PAUSE;
                }
                () = sleep_until(flying.deadline.into()) => {
                    return Err(unreachable(&dialer.at, format!("it didn't answer a read within {ANSWER_DEADLINE:?} of its end")));
                }
            }
        }
    }

    /// Waits without a read in flight.
    async fn idle(&mut self) -> Result<(), StoreError> {
        let back = self.cursors.next_return();
        let end = Instant::now() + self.options.block;
        let end = back.map_or(end, |back| back.min(end));
        let interrupt = Arc::clone(&self.interrupt);
        let session = self.session()?;
        let mut builder = FrameBuilder::default();
        tokio::select! {
            heard = session.read.hear(&mut builder) => match heard? {
                None => Ok(()),
                Some(_) => Err(session.read.refused("XREADGROUP", b"ERR an answer came that nobody asked for")),
            },
            () = interrupt.notified() => Ok(()),
            () = sleep_until(end.into()) => Ok(()),
        }
    }

    /// The entries of an answer, or `None` when groups must be put in order first.
    async fn understand(
        &mut self,
        answer: Answer,
        serial: u64,
    ) -> Result<Option<Vec<Read>>, StoreError> {
        let streams = match answer {
            Answer::Streams(streams) => streams,
            Answer::Refused(text) => {
                self.put_in_order(&text).await?;
                return Ok(None);
            }
        };
        let mut reads = Vec::with_capacity(streams.iter().map(|(_, entries)| entries.len()).sum());
        for (name, entries) in streams {
            if let Some(key) = self
                .cursors
                .took(&name, &entries, self.options.count, serial)
            {
                reads.extend(entries.into_iter().map(|entry| Read {
                    stream: key.clone(),
                    entry,
                }));
            }
        }
        Ok(Some(reads))
    }

    fn batch(&mut self, entries: Vec<Read>) -> Batch {
        let mut batch = Batch {
            entries,
            ..std::mem::take(&mut self.report)
        };
        if let Some(session) = &mut self.session {
            batch.changed |= session.read.take_changed();
            if !session.tells_changes
                && self
                    .change_assumed
                    .is_none_or(|at| at.elapsed() >= ASSUMED_CHANGE)
            {
                self.change_assumed = Some(Instant::now());
                batch.changed = true;
            }
        }
        batch
    }
}

#[async_trait]
impl GroupReader for ValkeyReader {
    fn assign(&mut self, streams: Vec<Key>) {
        self.reassigned |= self.cursors.assign(streams);
    }

    async fn read(&mut self) -> Result<Batch, StoreError> {
        let result = self.turns().await;
        if result.is_err() {
            self.lost();
        }
        result
    }

    fn rewind(&mut self) {
        self.rewound = true;
    }

    async fn settle(
        &mut self,
        fence: &Fence,
        settlements: Vec<Settlement>,
    ) -> Result<Vec<Settled>, StoreError> {
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        let result = self.hand_over(fence, &settlements).await;
        if matches!(
            result,
            Err(StoreError::Unreachable { .. } | StoreError::Protocol { .. })
        ) {
            self.lost();
        }
        result
    }

    fn interrupter(&self) -> Box<dyn Interrupt> {
        Box::new(Interrupter(Arc::clone(&self.interrupt)))
    }
}

/// Keeps one interruption for a reader that isn't reading yet, so that none is missed.
struct Interrupter(Arc<Notify>);

#[async_trait]
impl Interrupt for Interrupter {
    async fn interrupt(&self) {
        self.0.notify_one();
    }
}
