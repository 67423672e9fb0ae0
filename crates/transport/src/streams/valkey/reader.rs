//! Reading as a group's consumer, and settling what was read.
//!
//! A reader has a connection for each lane of streams, and one that settles. A lane has a read in
//! flight nearly all the time; it is sent as soon as the settlements of the read before are on
//! their way, so that the store works while its answer travels. When any connection breaks all are
//! given up, and everything is read again from the oldest pending entry: what a lost answer held
//! comes again, in order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::backoff::{Backoff, spread};
use super::connection::Connection;
use super::dial::{Dialer, unreachable};
use super::entries::Answer;
use super::lane::{Heard, Lane, overdue};
use super::lanes;
use super::session::Session;
use crate::streams::{
    Batch, Fence, GroupReader, Interrupt, Key, Read, ReaderOptions, Settled, Settlement, StoreError,
};

mod groups;
mod handover;

use handover::{EAGER, Submitted};

/// Reads in one call that end in putting groups in order instead of in entries.
const MAX_TURNS: usize = 4;
/// How often a change is assumed where the store can't tell of changes.
const ASSUMED_CHANGE: Duration = Duration::from_secs(1);

/// A reader of one Valkey or Redis server.
pub(crate) struct ValkeyReader {
    dialer: Arc<Dialer>,
    options: ReaderOptions,
    /// What the store's list of connections calls this reader; no other has the name.
    name: String,
    /// The busy streams, then the quiet ones.
    lanes: Vec<Lane>,
    /// The lane that is asked first, so that a busy one doesn't keep the others from being heard.
    turn: usize,
    session: Option<Session>,
    /// Streams of quiet lanes that have had something; those lanes have no read in flight.
    awake: Vec<(usize, Vec<Key>)>,
    submitted: VecDeque<Submitted>,
    /// Pending entries are to be given again.
    rewound: bool,
    /// Something was sent whose answer hasn't been awaited: if that is still so at the next call,
    /// the caller dropped the one before, and the connections are no longer in step.
    midway: bool,
    /// What the next batch will tell.
    report: Batch,
    /// Numbers of connections that broke, perhaps without the store's knowledge.
    former: Vec<u64>,
    backoff: Backoff,
    retry_at: Option<Instant>,
    change_assumed: Option<Instant>,
    interrupt: Arc<Notify>,
    /// Until when reads may be begun; `None` for ever.
    allowed: Option<Instant>,
}

/// What ended a wait.
enum Woken {
    /// An answer to the read of a lane.
    Answer {
        lane: usize,
        answer: Answer,
        serial: u64,
    },
    /// A watched key changed, somebody interrupted, or the time was over.
    Nothing,
}

impl ValkeyReader {
    pub(crate) fn new(dialer: Arc<Dialer>, options: ReaderOptions) -> ValkeyReader {
        ValkeyReader {
            dialer,
            options,
            name: format!("crossway-reader-{:016x}", spread()),
            lanes: vec![Lane::default()],
            turn: 0,
            session: None,
            awake: Vec::new(),
            submitted: VecDeque::new(),
            rewound: false,
            midway: false,
            report: Batch::default(),
            former: Vec::new(),
            backoff: Backoff::default(),
            retry_at: None,
            change_assumed: None,
            interrupt: Arc::new(Notify::new()),
            allowed: None,
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
        if self.session.is_none() {
            if let Some(at) = self.retry_at {
                sleep_until(at.into()).await;
            }
            self.session = Some(Session::open(&self.dialer, &self.name, &self.former).await?);
            self.former.clear();
            // Whatever happened while nobody listened.
            self.report.changed = true;
        }
        for at in 0..self.lanes.len() {
            if self
                .lanes
                .get(at)
                .is_some_and(|lane| lane.connection.is_none())
            {
                let mut connection = Connection::open(&self.dialer, &self.name).await?;
                let told = connection.watch(&self.options.watched).await?;
                if let Some(lane) = self.lanes.get_mut(at) {
                    lane.connection = Some(connection);
                }
                if !told {
                    self.assume_changes();
                }
            }
        }
        Ok(())
    }

    fn assume_changes(&mut self) {
        if self.change_assumed.is_none() {
            tracing::warn!(
                store = %self.dialer.at,
                "the store doesn't tell of changed keys (CLIENT TRACKING); they are read again every second"
            );
        }
        self.change_assumed = Some(Instant::now());
        if let Some(session) = &mut self.session {
            session.tells_changes = false;
        }
    }

    /// Gives up all connections; the next call connects again.
    fn lost(&mut self) {
        let settle = self.session.take().map(|session| session.settle.id);
        let lanes = self
            .lanes
            .iter()
            .filter_map(|lane| lane.connection.as_ref());
        self.former
            .extend(lanes.map(|connection| connection.id).chain(settle));
        for lane in &mut self.lanes {
            lane.lose();
        }
        self.awake.clear();
        self.submitted.clear();
        self.midway = false;
        self.rewound = false;
        self.retry_at = Some(Instant::now() + self.backoff.next(spread()));
    }

    async fn turns(&mut self) -> Result<Batch, StoreError> {
        self.connected().await?;
        for _ in 0..MAX_TURNS {
            let entries = self.settle_down().await?;
            if !entries.is_empty() {
                return Ok(self.batch(entries));
            }
            for at in 0..self.lanes.len() {
                self.make_groups(at).await?;
            }
            if !self.report.remade.is_empty() || !self.report.not_streams.is_empty() {
                break;
            }
            self.launch().await?;
            match self.wait().await? {
                Woken::Nothing => break,
                Woken::Answer {
                    lane,
                    answer,
                    serial,
                } => {
                    if let Some(entries) = self.take(lane, answer, serial).await? {
                        self.backoff.reset();
                        if entries.len() >= EAGER {
                            self.midway = true;
                            self.read_ahead().await?;
                            self.midway = false;
                        }
                        return Ok(self.batch(entries));
                    }
                }
            }
        }
        Ok(self.batch(Vec::new()))
    }

    /// Ends reads that are no longer what is wanted, before others are sent: a stream is never in
    /// two reads at once. Gives what they had.
    async fn settle_down(&mut self) -> Result<Vec<Read>, StoreError> {
        let mut entries = self.promote().await?;
        for at in 0..self.lanes.len() {
            let stale = |lane: &Lane| lane.is_flying() && (self.rewound || lane.reassigned);
            if self.lanes.get(at).is_some_and(stale) {
                entries.extend(self.land(at).await?);
            }
        }
        if std::mem::take(&mut self.rewound) {
            // What was had is pending, and comes again in its turn.
            entries.clear();
            for lane in &mut self.lanes {
                lane.cursors.rewind();
            }
        }
        Ok(entries)
    }

    /// Ends the read that a lane has in flight, and gives what it had.
    async fn land(&mut self, at: usize) -> Result<Vec<Read>, StoreError> {
        self.catch_up().await?;
        self.midway = true;
        let (Some(lane), Some(session)) = (self.lanes.get_mut(at), &mut self.session) else {
            return Err(unreachable(&self.dialer.at, "the connection is gone"));
        };
        let landed = lane.land(&mut session.settle, &self.dialer.at).await?;
        let entries = match landed {
            Some((answer, serial)) => self
                .understand(at, answer, serial)
                .await?
                .unwrap_or_default(),
            None => Vec::new(),
        };
        self.midway = false;
        Ok(entries)
    }

    fn may_read(&self) -> bool {
        self.allowed.is_none_or(|until| Instant::now() < until)
    }

    async fn launch(&mut self) -> Result<(), StoreError> {
        if !self.may_read() {
            return Ok(());
        }
        for lane in &mut self.lanes {
            if !lane.is_flying() {
                self.midway = true;
                lane.launch(&self.options, &self.dialer.at).await?;
                self.midway = false;
            }
        }
        Ok(())
    }

    /// Waits until a lane has an answer. Without a read in flight, until something can be read.
    async fn wait(&mut self) -> Result<Woken, StoreError> {
        let overdue_at = self.lanes.iter().filter_map(Lane::deadline).min();
        let mut enough = Instant::now() + self.options.block;
        if let Some(back) = self
            .lanes
            .iter()
            .filter_map(|lane| lane.cursors.next_return())
            .min()
        {
            enough = enough.min(back);
        }
        self.turn = (self.turn + 1) % self.lanes.len().max(1);
        let turn = self.turn;
        let ValkeyReader {
            lanes,
            interrupt,
            dialer,
            ..
        } = self;
        let heard = poll_fn(|cx| {
            let (before, after) = lanes.split_at_mut(turn);
            let after = after
                .iter_mut()
                .enumerate()
                .map(|(at, lane)| (turn + at, lane));
            for (at, lane) in after.chain(before.iter_mut().enumerate()) {
                if let Poll::Ready(heard) = lane.poll(cx) {
                    return Poll::Ready(heard.map(|heard| (at, heard)));
                }
            }
            Poll::Pending
        });
        tokio::select! {
            biased;
            heard = heard => Ok(match heard? {
                (lane, Heard::Answer(answer, serial)) => Woken::Answer { lane, answer, serial },
                (_, Heard::Change) => Woken::Nothing,
            }),
            () = interrupt.notified() => Ok(Woken::Nothing),
            () = sleep_until(overdue_at.unwrap_or(enough).into()) => match overdue_at {
                Some(_) => Err(overdue(&dialer.at)),
                None => Ok(Woken::Nothing),
            },
        }
    }

    /// The entries of a lane's answer, or `None` when groups must be put in order first.
    async fn take(
        &mut self,
        at: usize,
        answer: Answer,
        serial: u64,
    ) -> Result<Option<Vec<Read>>, StoreError> {
        let entries = self.understand(at, answer, serial).await?;
        if let Some(entries) = entries
            .as_ref()
            .filter(|entries| at > 0 && !entries.is_empty())
            && let Some(lane) = self.lanes.get_mut(at)
        {
            // They are given at once; their streams move to the busy ones before the next read.
            let mut keys: Vec<Key> = entries.iter().map(|read| read.stream.clone()).collect();
            keys.dedup();
            self.awake.push((at, keys));
            lane.reassigned = true;
        }
        Ok(entries)
    }

    async fn promote(&mut self) -> Result<Vec<Read>, StoreError> {
        let mut entries = Vec::new();
        if !self.awake.is_empty() && self.lanes.first().is_some_and(Lane::is_flying) {
            entries = self.land(0).await?;
        }
        for (at, keys) in std::mem::take(&mut self.awake) {
            if let Some((busy, quiet)) = self.lanes.split_first_mut()
                && let Some(quiet) = at.checked_sub(1).and_then(|at| quiet.get_mut(at))
            {
                lanes::promote(busy, quiet, &keys, Instant::now());
            }
        }
        Ok(entries)
    }

    async fn understand(
        &mut self,
        at: usize,
        answer: Answer,
        serial: u64,
    ) -> Result<Option<Vec<Read>>, StoreError> {
        let streams = match answer {
            Answer::Streams(streams) => streams,
            Answer::Refused(text) => {
                self.put_in_order(at, &text).await?;
                return Ok(None);
            }
        };
        let mut reads = Vec::with_capacity(streams.iter().map(|(_, entries)| entries.len()).sum());
        let (now, count) = (Instant::now(), self.options.count);
        for (name, entries) in streams {
            let key = self
                .lanes
                .get_mut(at)
                .and_then(|lane| lane.cursors.took(&name, &entries, count, serial, now));
            if let Some(key) = key {
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
        for connection in self
            .lanes
            .iter_mut()
            .filter_map(|lane| lane.connection.as_mut())
        {
            batch.changed |= connection.take_changed();
        }
        let told = self
            .session
            .as_ref()
            .is_none_or(|session| session.tells_changes);
        if !told
            && self
                .change_assumed
                .is_none_or(|at| at.elapsed() >= ASSUMED_CHANGE)
        {
            self.change_assumed = Some(Instant::now());
            batch.changed = true;
        }
        batch
    }
}

#[async_trait]
impl GroupReader for ValkeyReader {
    fn assign(&mut self, streams: Vec<Key>) {
        lanes::assign(&mut self.lanes, streams);
    }

    fn allow(&mut self, until: Instant) {
        self.allowed = Some(until);
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

    async fn submit(
        &mut self,
        fence: &Fence,
        settlements: Vec<Settlement>,
    ) -> Result<(), StoreError> {
        let result = self.send(fence, &settlements).await;
        if result.is_err() {
            self.lost();
        }
        result
    }

    async fn outcome(&mut self) -> Result<Option<Vec<Settled>>, StoreError> {
        let result = self.hear_outcome().await;
        match &result {
            Ok(_) => {}
            Err(StoreError::Unreachable { .. } | StoreError::Protocol { .. }) => self.lost(),
            Err(_) => {
                // What follows was submitted under the same fence, and stays unanswered for.
                if self.catch_up().await.is_err() {
                    self.lost();
                }
                self.submitted.clear();
            }
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
