//! The rate limits in force, and the buckets of those who send.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossway_core::address::SiteId;
use crossway_core::entry::EntryId;
use crossway_core::rate::{Bucket, Exceeded, Rate};
use crossway_transport::streams::Key;

/// The most pairs that are limited at once; a pair that has been idle for long enough doesn't count.
/// With more a new one has to wait, since to forget one would be to let it through.
const MAX_PAIRS: usize = 100_000;

/// How long a pair waits for which there is no room.
const NO_ROOM: Duration = Duration::from_secs(1);

/// How much each source, and each pair of source and target, may send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// For each source that isn't named below.
    pub per_site: Option<Rate>,
    /// For each pair that isn't named below.
    pub per_pair: Option<Rate>,
    /// For these sources.
    pub sites: HashMap<SiteId, Rate>,
    /// For these pairs: source, then target.
    pub pairs: HashMap<(SiteId, SiteId), Rate>,
}

impl RateLimits {
    fn is_off(&self) -> bool {
        self.per_site.is_none()
            && self.per_pair.is_none()
            && self.sites.is_empty()
            && self.pairs.is_empty()
    }

    fn of_site(&self, source: &SiteId) -> Option<Rate> {
        self.sites.get(source).copied().or(self.per_site)
    }

    fn of_pair(&self, source: &SiteId, target: &SiteId) -> Option<Rate> {
        if self.pairs.is_empty() {
            return self.per_pair;
        }
        let pair = (source.clone(), target.clone());
        self.pairs.get(&pair).copied().or(self.per_pair)
    }
}

/// A message that would pass.
pub(crate) struct Passing<'a> {
    /// The stream that it was read from, and its id there.
    pub(crate) stream: &'a Key,
    pub(crate) entry: EntryId,
    pub(crate) source: &'a SiteId,
    pub(crate) target: &'a SiteId,
    /// How many commands it has.
    pub(crate) commands: u32,
}

/// The buckets of all senders, shared by the readers of this daemon.
pub(crate) struct Limiter {
    started: Instant,
    senders: Mutex<Senders>,
}

#[derive(Default)]
struct Senders {
    sources: HashMap<SiteId, Sender>,
    pairs: usize,
    /// The number of pairs from which on idle ones are looked for.
    sweep_at: usize,
}

#[derive(Default)]
struct Sender {
    bucket: Bucket,
    pairs: HashMap<SiteId, Bucket>,
    /// The newest entry of each of its streams that was paid for. One that is decided again,
    /// because the store didn't take what was decided first, isn't paid for twice.
    paid: HashMap<Key, EntryId>,
}

impl Limiter {
    pub(crate) fn new() -> Limiter {
        Limiter {
            started: Instant::now(),
            senders: Mutex::default(),
        }
    }

    fn senders(&self) -> MutexGuard<'_, Senders> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limit that a message would exceed now. Nothing is taken.
    pub(crate) fn check(&self, limits: &RateLimits, message: &Passing<'_>) -> Option<Exceeded> {
        if limits.is_off() {
            return None;
        }
        let senders = self.senders();
        senders.check(limits, message, self.started.elapsed())
    }

    /// Takes what a message costs that passes.
    pub(crate) fn take(&self, limits: &RateLimits, message: &Passing<'_>) {
        if !limits.is_off() {
            let mut senders = self.senders();
            senders.take(limits, message, self.started.elapsed());
        }
    }
}

impl Senders {
    fn check(&self, limits: &RateLimits, message: &Passing<'_>, now: Duration) -> Option<Exceeded> {
        let sender = self.sources.get(message.source);
        if sender.is_some_and(|sender| sender.has_paid(message)) {
            return None;
        }
        if let Some(rate) = limits.of_site(message.source) {
            let bucket = sender.map(|sender| sender.bucket).unwrap_or_default();
            if let Err(exceeded) = bucket.check(rate, message.commands, now) {
                return Some(exceeded);
            }
        }
        let rate = limits.of_pair(message.source, message.target)?;
        match sender.and_then(|sender| sender.pairs.get(message.target)) {
            Some(bucket) => bucket.check(rate, message.commands, now).err(),
            None if self.pairs >= MAX_PAIRS => Some(Exceeded::For(NO_ROOM)),
            None => Bucket::default().check(rate, message.commands, now).err(),
        }
    }

    fn take(&mut self, limits: &RateLimits, message: &Passing<'_>, now: Duration) {
        if self.pairs >= self.sweep_at.max(1024) {
            self.sweep(now);
        }
        let sender = self.sources.entry(message.source.clone()).or_default();
        if sender.has_paid(message) {
            return;
        }
        if let Some(rate) = limits.of_site(message.source) {
            sender.bucket.take(rate, message.commands, now);
        }
        if let Some(rate) = limits.of_pair(message.source, message.target) {
            let before = sender.pairs.len();
            let bucket = sender.pairs.entry(message.target.clone()).or_default();
            bucket.take(rate, message.commands, now);
            self.pairs += sender.pairs.len() - before;
        }
        sender.paid.insert(message.stream.clone(), message.entry);
    }

    /// Forgets pairs whose bucket is full: a new one would be the same.
    fn sweep(&mut self, now: Duration) {
        for sender in self.sources.values_mut() {
            sender.pairs.retain(|_, bucket| !bucket.is_full(now));
        }
        self.pairs = self.sources.values().map(|sender| sender.pairs.len()).sum();
        self.sweep_at = (self.pairs * 2).min(MAX_PAIRS);
    }
}

impl Sender {
    fn has_paid(&self, message: &Passing<'_>) -> bool {
        self.paid
            .get(message.stream)
            .is_some_and(|paid| *paid >= message.entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(name: &str) -> SiteId {
        SiteId::parse(name).unwrap()
    }

    fn limits() -> RateLimits {
        RateLimits {
            per_site: Some(Rate::new(1.0, 3).unwrap()),
            per_pair: Some(Rate::new(1.0, 2).unwrap()),
            ..RateLimits::default()
        }
    }

    /// Whether the entry with this number passes at second `now`.
    fn sends(
        senders: &mut Senders,
        limits: &RateLimits,
        number: u64,
        target: &str,
        now: u64,
    ) -> bool {
        let (source, target) = (site("a"), site(target));
        let message = Passing {
            stream: &"a:s".into(),
            entry: EntryId::new(number, 0),
            source: &source,
            target: &target,
            commands: 1,
        };
        let now = Duration::from_secs(now);
        let passes = senders.check(limits, &message, now).is_none();
        if passes {
            senders.take(limits, &message, now);
        }
        passes
    }

    #[test]
    fn a_refused_message_costs_neither_the_site_nor_the_pair_anything() {
        let (mut senders, limits) = (Senders::default(), limits());
        let passed: Vec<bool> = ["b", "b", "b", "c", "c"]
            .iter()
            .zip(1..)
            .map(|(target, number)| sends(&mut senders, &limits, number, target, 0))
            .collect();
        assert_eq!(passed, [true, true, false, true, false]);
    }

    #[test]
    fn an_entry_that_is_decided_again_is_not_paid_for_again() {
        let (mut senders, limits) = (Senders::default(), limits());
        for _ in 0..10 {
            assert!(sends(&mut senders, &limits, 1, "b", 0));
        }
        assert!(sends(&mut senders, &limits, 2, "b", 0));
        assert!(!sends(&mut senders, &limits, 3, "b", 0));
    }

    #[test]
    fn a_named_site_has_its_own_rate_at_once_when_limits_change() {
        let (mut senders, mut limits) = (Senders::default(), limits());
        assert!(sends(&mut senders, &limits, 1, "b", 0));
        limits
            .pairs
            .insert((site("a"), site("b")), Rate::new(1.0, 1).unwrap());
        assert!(!sends(&mut senders, &limits, 2, "b", 0));
        limits.pairs.clear();
        assert!(sends(&mut senders, &limits, 2, "b", 0));
    }

    #[test]
    fn idle_pairs_are_forgotten() {
        let (mut senders, mut limits) = (Senders::default(), limits());
        limits.per_site = None;
        for number in 1..=5000 {
            assert!(sends(
                &mut senders,
                &limits,
                number,
                &format!("t{number}"),
                number * 10
            ));
        }
        assert!(senders.pairs <= 1025, "{}", senders.pairs);
    }
}
