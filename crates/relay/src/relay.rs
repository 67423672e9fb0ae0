//! The relay as a whole: one task that owns the others.
//!
//! It takes part in the membership, works out which streams this daemon is to read, spreads them
//! over readers, and takes streams away from a reader only to give them up once nothing of them
//! is in hand any more.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_core::address::SiteStream;
use crossway_transport::streams::{
    Fence, Health, Interrupt, Key, ReaderOptions, StoreError, Streams,
};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::channels::{self, Channels};
use crate::counters::Counters;
use crate::directory::Directory;
use crate::discovery;
use crate::judge::now_ms;
use crate::limiter::Limiter;
use crate::membership::{Impostor, Membership, ROUND, VALID_FOR, slice};
use crate::options::RelayOptions;
use crate::reader::{Assignment, Reader, Source};
use crate::telemetry::{self, Telemetry};
use crate::trimming;

/// The most streams that one reader reads. Its work is done by one core at a time, and what
/// waits costs it nothing; so it is a few thousand, and a large daemon has several.
const STREAMS_PER_READER: usize = 2048;

/// The most entries of one stream in one read.
const COUNT: usize = 256;

/// How long a read waits; see [`VALID_FOR`] for why it isn't longer.
const BLOCK: Duration = Duration::from_secs(1);

/// How long a round of the membership may take.
const ROUND_LIMIT: Duration = Duration::from_secs(2);

/// The consumer that every daemon reads as. Membership sees to it that they take turns, so
/// whoever takes a stream over finds what its predecessor had in hand under its own name.
const CONSUMER: &str = "relay";

/// What all tasks of a relay share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Streams>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) limiter: Limiter,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) channels: Channels,
    /// The standing among the daemons, renewed with each round.
    pub(crate) lease: watch::Sender<Option<Lease>>,
}

/// Leave to read, for a while.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) fence: Fence,
    pub(crate) valid_until: Instant,
    /// The slices whose streams this daemon reads.
    pub(crate) slices: Arc<BTreeSet<u16>>,
}

impl Lease {
    /// Waits until there is one that is valid.
    pub(crate) async fn valid(leases: &mut watch::Receiver<Option<Lease>>) -> Lease {
        loop {
            if let Some(lease) = &*leases.borrow_and_update()
                && Instant::now() < lease.valid_until
            {
                return lease.clone();
            }
            if leases.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Why a relay can't go on.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RelayError {
    /// Two live processes have one identity.
    #[error(
        "another process runs under this daemon's identity {member:?}; give each a data folder of its own"
    )]
    Impostor {
        /// The identity.
        member: String,
    },
}

/// Whether a relay can do its work, and what is missing.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Readiness {
    /// Everything below is as it should be.
    pub ready: bool,
    /// `up`, or why the store can't be used.
    pub store: String,
    /// Whether this daemon has its place among those on the store.
    pub member: bool,
    /// Whether registry and policy have been read.
    pub directory: bool,
}

/// A running relay.
pub struct Relay {
    shared: Arc<Shared>,
    stop: CancellationToken,
    tasks: TaskTracker,
    failure: watch::Receiver<Option<RelayError>>,
}

impl Relay {
    /// Starts a relay on a store; must be called within a runtime. It waits for a store that
    /// isn't there yet. Counters are registered in `metrics`.
    #[must_use]
    pub fn start(store: Arc<dyn Streams>, options: RelayOptions, metrics: &mut Registry) -> Relay {
        let counters = Arc::new(Counters::register(metrics));
        let options = Arc::new(options);
        let (directory, refresher) =
            Directory::new(Arc::clone(&store), options, Arc::clone(&counters));
        let telemetry = Arc::new(Telemetry::new(&directory.options().member));
        let shared = Arc::new(Shared {
            store,
            directory,
            counters,
            limiter: Limiter::new(),
            telemetry,
            channels: Channels::default(),
            lease: watch::Sender::new(None),
        });
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (failed, failure) = watch::channel(None);
        // The refresher outlives the readers, which may wait for it while they stop.
        let last = CancellationToken::new();
        tasks.spawn(refresher.run(last.clone()));
        tasks.spawn(telemetry::run(Arc::clone(&shared), last.clone()));
        tasks.spawn(discovery::run(Arc::clone(&shared), stop.clone()));
        tasks.spawn(trimming::run(Arc::clone(&shared), stop.clone()));
        tasks.spawn(channels::sweep::run(Arc::clone(&shared), stop.clone()));
        let owner = Owner::new(Arc::clone(&shared));
        let stopping = stop.clone();
        tasks.spawn(async move {
            if let Err(error) = owner.run(stopping).await {
                failed.send_replace(Some(error));
            }
            last.cancel();
        });
        tasks.close();
        Relay {
            shared,
            stop,
            tasks,
            failure,
        }
    }

    /// Puts changed options into force: default policy, administrators, manifest, formats, reply time,
    /// attempts, discovery, rates, length of streams, and limits on sites and channels. The others
    /// need a restart.
    pub async fn reload(&self, options: RelayOptions) {
        let old = self.shared.directory.options();
        let kept = RelayOptions {
            keyspace: old.keyspace.clone(),
            node: old.node.clone(),
            member: old.member.clone(),
            group: old.group.clone(),
            max_entry_bytes: old.max_entry_bytes,
            max_fields: old.max_fields,
            ..options
        };
        self.shared.directory.set_options(Arc::new(kept));
        let read = self.shared.directory.refresh().await;
        if let Err(error) = read.and(self.shared.directory.register_manifest(now_ms()).await) {
            tracing::warn!(%error, "the new options are in force, but the manifest's sites may not be registered yet");
        }
    }

    /// Asks how things stand, for at most about a second.
    pub async fn readiness(&self) -> Readiness {
        let store = match self.shared.store.health().await {
            Health::Up => "up".to_owned(),
            Health::Down(reason) => reason,
        };
        let member = self
            .shared
            .lease
            .borrow()
            .as_ref()
            .is_some_and(|lease| Instant::now() < lease.valid_until);
        let directory = self.shared.directory.is_loaded();
        Readiness {
            ready: store == "up" && member && directory,
            store,
            member,
            directory,
        }
    }

    /// Waits until the relay can't go on, for ever if that doesn't happen.
    pub async fn failed(&self) -> RelayError {
        let mut failure = self.failure.clone();
        loop {
            if let Some(error) = &*failure.borrow_and_update() {
                return error.clone();
            }
            if failure.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Stops reading, settles what is in hand, and leaves, for at most `deadline`. What isn't
    /// settled by then stays pending, and is taken up by the next start.
    pub async fn stop(self, deadline: Duration) -> bool {
        self.stop.cancel();
        tokio::time::timeout(deadline, self.tasks.wait())
            .await
            .is_ok()
    }
}

/// A reader's task, as its owner sees it.
struct Post {
    streams: HashMap<Key, Source>,
    generation: u64,
    assignments: watch::Sender<Assignment>,
    confirmed: watch::Receiver<u64>,
    interrupt: Box<dyn Interrupt>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Post {
    async fn assign(&mut self) {
        self.generation += 1;
        let streams = Arc::new(self.streams.clone());
        self.assignments.send_replace(Assignment {
            generation: self.generation,
            streams,
        });
        self.interrupt.interrupt().await;
    }

    fn is_settled(&self) -> bool {
        *self.confirmed.borrow() == self.generation
    }
}

/// The task that owns the readers.
struct Owner {
    shared: Arc<Shared>,
    membership: Membership,
    slices: BTreeSet<u16>,
    /// Slices that are being given up: their streams have been taken from the readers.
    leaving: BTreeSet<u16>,
    posts: Vec<Post>,
}

impl Owner {
    fn new(shared: Arc<Shared>) -> Owner {
        let membership = Membership::new(
            &shared.directory.options().member,
            &crate::ids::random_name(),
        );
        Owner {
            shared,
            membership,
            slices: BTreeSet::new(),
            leaving: BTreeSet::new(),
            posts: Vec::new(),
        }
    }

    async fn run(mut self, stop: CancellationToken) -> Result<(), RelayError> {
        self.make_ready(&stop).await;
        let mut streams_changed = self.shared.directory.streams_changed.subscribe();
        let mut rounds = tokio::time::interval(ROUND);
        rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let outcome = loop {
            tokio::select! {
                () = stop.cancelled() => break Ok(()),
                _ = rounds.tick() => {
                    if let Err(Impostor) = self.round().await {
                        break Err(RelayError::Impostor { member: self.shared.directory.options().member.to_string() });
                    }
                }
                _ = streams_changed.changed() => {}
            }
            streams_changed.mark_unchanged();
            self.place().await;
        };
        self.stop_readers().await;
        if outcome.is_ok() {
            self.leave().await;
        }
        outcome
    }

    /// Reads the directory and registers the manifest, for as long as it takes.
    async fn make_ready(&self, stop: &CancellationToken) {
        let directory = &self.shared.directory;
        let mut pause = Duration::from_millis(50);
        loop {
            let ready = match directory.refresh().await {
                Ok(()) => directory.register_manifest(now_ms()).await,
                Err(error) => Err(error),
            };
            let Err(error) = ready else { return };
            tracing::warn!(%error, "waiting for the store");
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(1)),
            }
        }
    }

    /// One round of the membership.
    async fn round(&mut self) -> Result<(), Impostor> {
        let options = self.shared.directory.options();
        let key = options.keyspace.members();
        let posts_settled = self.posts.iter().all(Post::is_settled);
        let release = if posts_settled {
            self.leaving.clone()
        } else {
            BTreeSet::new()
        };
        let started = Instant::now();
        let mut planned = None;
        let written = {
            let mut decide = |hash: &HashMap<String, String>| {
                let plan = self.membership.plan(hash, &release);
                let changes = plan
                    .as_ref()
                    .map(|plan| plan.changes.clone())
                    .unwrap_or_default();
                planned = Some(plan);
                changes
            };
            let update = self.shared.store.hash_update(&key, &mut decide);
            tokio::time::timeout(ROUND_LIMIT, update).await
        };
        let plan = match (written, planned) {
            (_, Some(Err(impostor))) => return Err(impostor),
            (Ok(Ok(_)), Some(Ok(plan))) => plan,
            (Ok(Err(error)), _) => {
                self.miss_round(&error);
                return Ok(());
            }
            (Err(_) | Ok(Ok(_)), _) => {
                let error = StoreError::Unreachable {
                    at: key.to_string(),
                    reason: "no answer in two seconds".to_owned(),
                };
                self.miss_round(&error);
                return Ok(());
            }
        };
        let standing = self.membership.settle(plan);
        if standing.evicted {
            self.shared.counters.evictions.inc();
            tracing::error!("this daemon was taken for dead and removed; it starts anew");
            self.stop_readers().await;
            self.leaving.clear();
        }
        self.leaving
            .retain(|slice| standing.slices.contains(slice) && !release.contains(slice));
        self.leaving.extend(&standing.surplus);
        self.slices = standing.slices.difference(&self.leaving).copied().collect();
        let counters = &self.shared.counters;
        counters
            .members
            .set(i64::try_from(standing.members).unwrap_or(i64::MAX));
        counters
            .slices
            .set(i64::try_from(standing.slices.len()).unwrap_or(i64::MAX));
        let lease = self.membership.fence(&options.keyspace).map(|fence| Lease {
            fence,
            valid_until: started + VALID_FOR,
            slices: Arc::new(self.slices.clone()),
        });
        self.shared.lease.send_replace(lease);
        Ok(())
    }

    fn miss_round(&self, error: &StoreError) {
        self.shared.counters.store_errors.inc();
        tracing::warn!(%error, "a round of the membership was missed");
    }

    /// The streams that this daemon is to read.
    fn wanted(&self) -> HashMap<Key, Source> {
        let options = self.shared.directory.options();
        let ours = |stream: &SiteStream| self.slices.contains(&slice(&stream.site));
        let streams = self.shared.directory.registry().streams();
        let mut wanted: HashMap<Key, Source> = streams
            .into_iter()
            .filter(ours)
            .map(|stream| (stream.key.clone(), Source::Site(stream)))
            .collect();
        if self.slices.contains(&slice(options.keyspace.namespace())) {
            wanted.insert(options.keyspace.register(), Source::Register);
        }
        wanted
    }

    /// Gives each wanted stream to a reader and takes the others away.
    async fn place(&mut self) {
        self.replace_ended();
        let mut wanted = self.wanted();
        self.shared
            .counters
            .streams
            .set(i64::try_from(wanted.len()).unwrap_or(i64::MAX));
        let mut changed = BTreeSet::new();
        for (index, post) in self.posts.iter_mut().enumerate() {
            let before = post.streams.len();
            post.streams.retain(|key, _| wanted.remove(key).is_some());
            if post.streams.len() != before {
                changed.insert(index);
            }
        }
        // There is always a reader: it also hears of changes to rules and sites.
        if self.posts.is_empty() {
            let post = self.open();
            self.posts.push(post);
        }
        let mut fresh = wanted.into_iter();
        let mut index = 0;
        while fresh.len() > 0 {
            if index == self.posts.len() {
                let post = self.open();
                self.posts.push(post);
            }
            let Some(post) = self.posts.get_mut(index) else {
                break;
            };
            let room = STREAMS_PER_READER.saturating_sub(post.streams.len());
            if room > 0 {
                post.streams.extend(fresh.by_ref().take(room));
                changed.insert(index);
            }
            index += 1;
        }
        for index in changed {
            if let Some(post) = self.posts.get_mut(index) {
                post.assign().await;
            }
        }
    }

    /// A reader's task never ends by itself; if one did, its streams are given to another.
    fn replace_ended(&mut self) {
        self.posts.retain(|post| {
            let ended = post.task.is_finished();
            if ended {
                tracing::error!("a reader has ended; its streams are given to another");
            }
            !ended
        });
    }

    fn open(&self) -> Post {
        let options = self.shared.directory.options();
        let keyspace = &options.keyspace;
        let reader = self.shared.store.reader(ReaderOptions {
            group: Arc::clone(&options.group),
            consumer: CONSUMER.into(),
            count: COUNT,
            block: BLOCK,
            max_entry_bytes: options.max_entry_bytes,
            max_fields: options.max_fields,
            watched: vec![
                keyspace.policy(),
                keyspace.formats(),
                keyspace.sites(),
                keyspace.entities(),
            ],
        });
        let interrupt = reader.interrupter();
        let (assignments, assigned) = watch::channel(Assignment::default());
        let (confirm, confirmed) = watch::channel(0);
        let stop = CancellationToken::new();
        let reader = Reader::new(Arc::clone(&self.shared), reader, assigned, confirm);
        let task = tokio::spawn(reader.run(stop.clone()));
        Post {
            streams: HashMap::new(),
            generation: 0,
            assignments,
            confirmed,
            interrupt,
            stop,
            task,
        }
    }

    async fn stop_readers(&mut self) {
        for post in &self.posts {
            post.stop.cancel();
        }
        for post in self.posts.drain(..) {
            // An error would mean that it panicked, which there is nothing left to do about.
            let _ = post.task.await;
        }
    }

    async fn leave(&self) {
        let key = self.shared.directory.options().keyspace.members();
        let mut decide = |hash: &HashMap<String, String>| self.membership.leave(hash);
        let left = tokio::time::timeout(
            ROUND_LIMIT,
            self.shared.store.hash_update(&key, &mut decide),
        )
        .await;
        if !matches!(left, Ok(Ok(_))) {
            tracing::warn!(
                "the store couldn't be told that this daemon leaves; another takes over in a few seconds"
            );
        }
    }
}
