//! The task that owns a reader: it reads a batch, has each entry decided, and settles them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_core::address::SiteStream;
use crossway_core::entry::{Entry, EntryId, Fields};
use crossway_transport::streams::{Batch, Fence, GroupReader, Key, Read, ReadEntry, StoreError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::counters::Outcome;
use crate::judge::{Judge, bare};
use crate::relay::{Lease, Shared};
use crate::reply::Record;
use crate::settling::{HandedOver, Subject, Work};
use crate::traces::{Trace, Tracer};

/// The most settlements in one call to the store: what it does at a time holds up everybody else.
const SETTLE_AT_ONCE: usize = 256;

/// A stream whose entries say nothing is written about at most this often.
const QUIET: Duration = Duration::from_secs(30);

/// The most streams and pairs of streams that are kept in mind for that.
const MAX_WRITTEN_ABOUT: usize = 4096;

/// Entries in a batch from which on there is likely more to read at once.
const MORE: usize = 64;

/// How often what is pending is looked through for entries that nobody has in hand: they were
/// given to a daemon that had been taken for dead, and no other read would give them again.
const SWEEP: Duration = Duration::from_secs(10);

/// The pause after a batch that the store wouldn't settle.
const STORE_PAUSE: Duration = Duration::from_millis(100);

/// What a stream is to the relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A site's unified stream.
    Site(SiteStream),
    /// Where sites that aren't known register.
    Register,
}

/// The streams a reader is to read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assignment {
    pub(crate) generation: u64,
    pub(crate) streams: Arc<HashMap<Key, Source>>,
}

/// Why a batch was given up; what of it wasn't settled is read again.
pub(crate) enum GivenUp {
    /// Another daemon has taken over.
    Fenced,
    /// The store couldn't do it now.
    Store(StoreError),
}

impl From<StoreError> for GivenUp {
    fn from(error: StoreError) -> GivenUp {
        match error {
            StoreError::Fenced => GivenUp::Fenced,
            error => GivenUp::Store(error),
        }
    }
}

/// The task's state.
pub(crate) struct Reader {
    pub(crate) shared: Arc<Shared>,
    pub(crate) reader: Box<dyn GroupReader>,
    assignments: watch::Receiver<Assignment>,
    /// The generation of the newest assignment that is fully in force: nothing of an older one is in hand.
    confirmed: watch::Sender<u64>,
    /// A newer assignment, and the reads that must pass until nothing of the older one is in hand.
    coming: Option<(u64, u8)>,
    sources: HashMap<Key, Source>,
    /// Submissions whose outcome hasn't been heard.
    pub(crate) handed_over: VecDeque<HandedOver>,
    last_fence: Option<Fence>,
    /// When the batch that is in hand had been read.
    pub(crate) read_at: Instant,
    pub(crate) judge: Judge,
    tracer: Tracer,
    /// The entry that couldn't be decided last, and how often in a row.
    stuck: Option<(Key, EntryId, u32)>,
    written_about: HashMap<Key, Instant>,
}

impl Reader {
    pub(crate) fn new(
        shared: Arc<Shared>,
        reader: Box<dyn GroupReader>,
        assignments: watch::Receiver<Assignment>,
        confirmed: watch::Sender<u64>,
    ) -> Reader {
        Reader {
            judge: Judge::new(Arc::clone(&shared)),
            tracer: Tracer::new(),
            shared,
            reader,
            assignments,
            confirmed,
            coming: None,
            sources: HashMap::new(),
            stuck: None,
            handed_over: VecDeque::new(),
            last_fence: None,
            read_at: Instant::now(),
            written_about: HashMap::new(),
        }
    }

    /// Reads until cancelled; then what is in hand is settled first.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        self.assignments.mark_changed();
        let (mut swept, mut fresh) = (Instant::now(), true);
        while !stop.is_cancelled() {
            self.take_assignment();
            let mut leases = self.shared.lease.subscribe();
            let lease = tokio::select! {
                () = stop.cancelled() => return,
                lease = Lease::valid(&mut leases) => lease,
            };
            self.reader.allow(lease.valid_until);
            self.last_fence = Some(lease.fence.clone());
            let read = tokio::select! {
                () = stop.cancelled() => break,
                read = self.reader.read() => read,
            };
            let batch = match read {
                // Whatever changed before this reader was there, nobody told it.
                Ok(batch) => Batch {
                    changed: batch.changed | std::mem::take(&mut fresh),
                    ..batch
                },
                Err(error) => {
                    self.handed_over.clear();
                    self.shared.counters.store_errors.inc();
                    tracing::warn!(%error, "reading");
                    pause(&stop, STORE_PAUSE).await;
                    continue;
                }
            };
            let started = Instant::now();
            self.read_at = started;
            let count = batch.entries.len();
            let sweep = swept.elapsed() >= SWEEP;
            // While there is more to read, the store carries out one batch as the next is decided.
            let ahead = if count >= MORE && self.coming.is_none() && !sweep {
                1
            } else {
                0
            };
            let mut handled = self.handle(batch, &lease.fence).await;
            if handled.is_ok() {
                handled = self.hear(ahead, &lease.fence).await;
            }
            if let Err(reason) = handled {
                self.forget().await;
                self.reader.rewind();
                self.give_up(reason, &mut leases, &stop).await;
                continue;
            }
            if count > 0 {
                let elapsed = started.elapsed().as_secs_f64();
                self.shared.counters.crossing.observe(elapsed);
            }
            self.confirm();
            if sweep {
                swept = Instant::now();
                self.reader.rewind();
            }
        }
        if let Some(fence) = self.last_fence.take() {
            // What is on its way is waited for; more isn't begun.
            let _ = self.hear(0, &fence).await;
        }
    }

    /// Waits for what is on its way, so that nothing is outstanding, and counts none of it: what of
    /// it wasn't done is read again.
    async fn forget(&mut self) {
        self.handed_over.clear();
        while let Ok(Some(_)) = self.reader.outcome().await {}
    }

    async fn give_up(
        &mut self,
        reason: GivenUp,
        leases: &mut watch::Receiver<Option<Lease>>,
        stop: &CancellationToken,
    ) {
        match reason {
            GivenUp::Fenced => {
                tracing::warn!(
                    "this daemon was taken for dead while it was away; what it had read is left to whoever took over"
                );
                // The next round of the membership finds out, and makes all readers anew.
                tokio::select! {
                    () = stop.cancelled() => {}
                    _ = leases.changed() => {}
                }
            }
            GivenUp::Store(error) => {
                self.shared.counters.store_errors.inc();
                tracing::warn!(%error, "a batch wasn't settled; it is read again");
            }
        }
        pause(stop, STORE_PAUSE).await;
    }

    fn take_assignment(&mut self) {
        if !self.assignments.has_changed().unwrap_or(false) {
            return;
        }
        let assignment = self.assignments.borrow_and_update().clone();
        self.reader
            .assign(assignment.streams.keys().cloned().collect());
        // What the read that waits now was asked for comes with the next one, so two must pass.
        self.coming = Some((assignment.generation, 2));
        self.sources.extend(
            assignment
                .streams
                .iter()
                .map(|(key, source)| (key.clone(), source.clone())),
        );
    }

    /// Counts a read that has been settled towards the coming assignment.
    fn confirm(&mut self) {
        let Some((generation, left)) = self.coming else {
            return;
        };
        if left > 1 {
            self.coming = Some((generation, left - 1));
            return;
        }
        self.coming = None;
        let current = self.assignments.borrow().clone();
        if current.generation == generation {
            self.sources
                .retain(|key, _| current.streams.contains_key(key));
        }
        self.confirmed.send_replace(generation);
    }

    async fn handle(&mut self, batch: Batch, fence: &Fence) -> Result<(), GivenUp> {
        self.report(&batch);
        if batch.changed || !batch.remade.is_empty() {
            self.shared.directory.refresh().await?;
        }
        if batch.entries.is_empty() {
            return Ok(());
        }
        let records = self.judge.records(&batch.entries).await?;
        let mut work = Work::new();
        let mut rest = batch.entries.into_iter().zip(records);
        for (read, record) in rest.by_ref() {
            self.decide(read, record, &mut work, fence).await?;
            if work.decided.len() >= SETTLE_AT_ONCE {
                self.submit(&mut work, fence).await?;
            }
        }
        self.submit(&mut work, fence).await
    }

    fn report(&mut self, batch: &Batch) {
        if !batch.remade.is_empty() {
            self.shared
                .counters
                .groups_remade
                .inc_by(batch.remade.len() as u64);
            tracing::error!(
                streams = batch.remade.len(),
                first = batch.remade.first().map(|key| &**key),
                "consumer groups had vanished and were made again from the beginning: the store was flushed or restarted without its data"
            );
        }
        for key in &batch.not_streams {
            if self.may_write_about(key) {
                tracing::warn!(
                    key = &**key,
                    "this key isn't a stream; it is left out until it is one"
                );
            }
        }
    }

    pub(crate) fn may_write_about(&mut self, key: &Key) -> bool {
        let now = Instant::now();
        match self.written_about.get(key) {
            Some(before) if now.duration_since(*before) < QUIET => false,
            _ => {
                if self.written_about.len() >= MAX_WRITTEN_ABOUT {
                    self.written_about
                        .retain(|_, before| now.duration_since(*before) < QUIET);
                }
                let room = self.written_about.len() < MAX_WRITTEN_ABOUT;
                if room {
                    self.written_about.insert(key.clone(), now);
                }
                room
            }
        }
    }

    /// Decides one entry; a command of the daemon's own is run, after all before it was settled.
    async fn decide(
        &mut self,
        read: Read,
        record: Option<Record>,
        work: &mut Work,
        fence: &Fence,
    ) -> Result<(), GivenUp> {
        let Some(source) = self.sources.get(&read.stream).cloned() else {
            // Not asked for any more; whoever reads it now is given it again.
            return Ok(());
        };
        let entry = match read.entry {
            ReadEntry::Whole(entry) => entry,
            ReadEntry::Oversize {
                id,
                bytes,
                fields,
                head,
            } => {
                let head = Entry { id, fields: head };
                let trace = self.trace(&source, &head, record.as_ref());
                let decided = self
                    .judge
                    .oversize(&source, &head, bytes, fields, record.as_ref());
                work.push(decided, Subject::new(source, head, trace));
                return Ok(());
            }
            ReadEntry::Gone(id) => {
                tracing::error!(stream = &*read.stream, entry = %id, "an entry was deleted before it was handled");
                let decided = bare(read.stream, id, Outcome::Gone);
                let fields = Fields::default();
                work.push(decided, Subject::new(source, Entry { id, fields }, None));
                return Ok(());
            }
        };
        let mut trace = self.trace(&source, &entry, record.as_ref());
        let decided = match &source {
            Source::Register => {
                self.submit(work, fence).await?;
                self.hear(0, fence).await?;
                self.judge.register(&read.stream, &entry).await
            }
            Source::Site(stream) => {
                let context = trace.as_ref().map(|trace| trace.context());
                match self
                    .judge
                    .cross(stream, &entry, record.as_ref(), context)
                    .await
                {
                    Ok(Some(decided)) => Ok(decided),
                    Ok(None) => {
                        self.submit(work, fence).await?;
                        self.hear(0, fence).await?;
                        trace = self.trace_command(stream, &entry);
                        self.judge.command(stream, &entry).await
                    }
                    Err(error) => Err(error),
                }
            }
        };
        let decided = match decided {
            Ok(decided) => decided,
            Err(error) if !error.is_transient() && self.is_stuck(&read.stream, entry.id) => {
                self.judge.undecidable(&source, &entry, &error)
            }
            Err(error) => return Err(error.into()),
        };
        work.push(decided, Subject::new(source, entry, trace));
        Ok(())
    }

    /// Begins the span of a crossing, where it is to be recorded.
    fn trace(
        &mut self,
        source: &Source,
        entry: &Entry,
        record: Option<&Record>,
    ) -> Option<Box<Trace>> {
        let options = self.shared.directory.options();
        let (traces, Source::Site(stream)) = (options.traces.as_ref()?, source) else {
            return None;
        };
        self.tracer
            .crossing(traces, stream, entry, record, self.read_at)
    }

    /// Begins the span of a command of the daemon's own, where it is to be recorded.
    fn trace_command(&mut self, stream: &SiteStream, entry: &Entry) -> Option<Box<Trace>> {
        let options = self.shared.directory.options();
        self.tracer
            .command(options.traces.as_ref()?, stream, entry, self.read_at)
    }

    /// Counts another time that an entry couldn't be decided; whether it was tried often enough.
    fn is_stuck(&mut self, stream: &Key, entry: EntryId) -> bool {
        let times = match &self.stuck {
            Some((at, id, times)) if at == stream && *id == entry => times + 1,
            _ => 1,
        };
        self.stuck = Some((stream.clone(), entry, times));
        times >= self.shared.directory.options().max_attempts
    }
}

async fn pause(stop: &CancellationToken, time: Duration) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(time) => {}
    }
}
