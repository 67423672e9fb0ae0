//! What was relayed between whom, counted for each pair of sites.
//!
//! Readers count into a table in memory; one task adds it to the hash on the store every half
//! minute and at shutdown. A portion is frozen under a number before it is written, and the number
//! is written with it in one atomic change: a portion whose answer was lost is offered again
//! unchanged, and does nothing where it had arrived.

mod table;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossway_core::address::SiteId;
use crossway_transport::streams::{HashChange, StoreError, Streams};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::table::{OTHER, Table};
use crate::relay::Shared;

/// How often counts are written to the store.
const FLUSH: Duration = Duration::from_secs(30);

/// How long one flush may take.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// The longest command name that is kept, in bytes.
const MAX_NAME: usize = 128;

/// Between whom a message passed, and what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Passage {
    source: SiteId,
    target: String,
    command: String,
}

impl Passage {
    /// `target` and `command` may be anything that came from outside; what can't be a name is
    /// counted with the rest.
    pub(crate) fn new(source: &SiteId, target: &str, command: &str) -> Passage {
        let named = |text: &str, fits: bool| (if fits { text } else { OTHER }).to_owned();
        Passage {
            source: source.clone(),
            target: named(target, SiteId::parse(target).is_ok()),
            command: named(command, !command.is_empty() && command.len() <= MAX_NAME),
        }
    }
}

/// How a message that is counted ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Handed over as it came.
    Relayed,
    /// Handed over in another format.
    Translated,
    /// Refused.
    Refused,
}

/// What isn't on the store yet.
#[derive(Debug, Clone, Default)]
struct Unwritten {
    fresh: Table,
    /// The portion that is being written, kept until the store has confirmed it.
    frozen: Option<Table>,
    /// The number of the portion that was frozen last.
    number: u64,
}

/// The counts of this process that the store doesn't have yet.
pub(crate) struct Telemetry {
    /// Tells the portions of this process from those of one before it.
    run: String,
    field: String,
    unwritten: Mutex<Unwritten>,
}

impl Telemetry {
    /// `member` is this daemon's identity among those on the store.
    pub(crate) fn new(member: &str) -> Telemetry {
        Telemetry {
            run: crate::ids::random_name(),
            field: format!("portion|{member}"),
            unwritten: Mutex::default(),
        }
    }

    /// Counts a hand-over or a refusal, `latency` after its batch had been read.
    pub(crate) fn count(&self, passage: &Passage, ended: Ended, latency: Duration) {
        let Passage {
            source,
            target,
            command,
        } = passage;
        self.lock()
            .fresh
            .count(source.as_str(), target, command, ended, latency);
    }

    /// Adds what has been counted to the hash `key`; what isn't confirmed is kept.
    pub(crate) async fn flush(&self, store: &dyn Streams, key: &str) -> Result<(), StoreError> {
        let Some((portion, number)) = self.freeze() else {
            return Ok(());
        };
        let mark = format!("{}:{number}", self.run);
        let mut add = |hash: &HashMap<String, String>| {
            if hash.get(&self.field) == Some(&mark) {
                return Vec::new();
            }
            let mut total = Table::parse(hash);
            total.merge(&portion);
            let changed = total.fields();
            changed
                .into_iter()
                .filter(|(field, value)| hash.get(field) != Some(value))
                .chain([(self.field.clone(), mark.clone())])
                .map(|(field, value)| HashChange::Set(field, value))
                .collect()
        };
        store.hash_update(key, &mut add).await?;
        self.lock().frozen = None;
        Ok(())
    }

    fn freeze(&self) -> Option<(Table, u64)> {
        let mut unwritten = self.lock();
        if unwritten.frozen.is_none() && !unwritten.fresh.is_empty() {
            unwritten.frozen = Some(std::mem::take(&mut unwritten.fresh));
            unwritten.number = unwritten.number.saturating_add(1);
        }
        let number = unwritten.number;
        unwritten.frozen.clone().map(|frozen| (frozen, number))
    }

    /// All pairs, from the store and what isn't on it yet.
    pub(crate) async fn report(&self, store: &dyn Streams, key: &str) -> Result<Value, StoreError> {
        let unwritten = self.lock().clone();
        let hash = store.hash_all(key).await?;
        let written = hash
            .get(&self.field)
            .and_then(|mark| mark.split_once(':'))
            .filter(|(run, _)| *run == self.run)
            .and_then(|(_, number)| number.parse::<u64>().ok())
            .unwrap_or(0);
        let mut total = Table::parse(&hash);
        // A portion may have arrived since the look at what is unwritten.
        if let Some(frozen) = unwritten.frozen.filter(|_| unwritten.number > written) {
            total.merge(&frozen);
        }
        if unwritten.number >= written {
            total.merge(&unwritten.fresh);
        }
        Ok(total.report())
    }

    fn lock(&self) -> MutexGuard<'_, Unwritten> {
        self.unwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the counts regularly, and a last time when cancelled, which is after all readers ended.
pub(crate) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let key = shared.directory.options().keyspace.telemetry();
    loop {
        let last = tokio::select! {
            () = stop.cancelled() => true,
            () = tokio::time::sleep(FLUSH) => false,
        };
        // What waits from a flush that failed goes first, then what has come since.
        for _ in 0..2 {
            let flush = shared.telemetry.flush(&*shared.store, &key);
            match tokio::time::timeout(FLUSH_LIMIT, flush).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    shared.counters.store_errors.inc();
                    tracing::warn!(%error, "the counts of pairs weren't written; they are kept for the next time");
                    break;
                }
                Err(_) => {
                    shared.counters.store_errors.inc();
                    tracing::warn!(
                        key = &*key,
                        "the store didn't take the counts of pairs in two seconds; they are kept for the next time"
                    );
                    break;
                }
            }
        }
        if last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossway_transport::streams::embedded::Embedded;

    #[tokio::test]
    async fn a_portion_whose_confirmation_was_lost_is_added_once() {
        let store = Embedded::in_memory();
        let telemetry = Telemetry::new("one");
        let passage = Passage::new(&SiteId::parse("a").unwrap(), "b", "get");
        telemetry.count(&passage, Ended::Relayed, Duration::ZERO);
        let (portion, _) = telemetry.freeze().unwrap();
        telemetry.flush(&*store, "h").await.unwrap();
        // As if the answer had not come: the portion is still held.
        telemetry.lock().frozen = Some(portion);
        telemetry.count(&passage, Ended::Relayed, Duration::ZERO);
        let report = telemetry.report(&*store, "h").await.unwrap();
        assert_eq!(report["total_ok"], 2);
        telemetry.flush(&*store, "h").await.unwrap();
        assert_eq!(
            store.hash_get("h", "a|b|ok").await.unwrap().as_deref(),
            Some("1")
        );
        telemetry.flush(&*store, "h").await.unwrap();
        assert_eq!(
            store.hash_get("h", "a|b|ok").await.unwrap().as_deref(),
            Some("2")
        );
    }

    #[tokio::test]
    async fn the_counts_of_several_daemons_add_up() {
        let store = Embedded::in_memory();
        let passage = Passage::new(&SiteId::parse("a").unwrap(), "b", "get");
        for member in ["one", "two", "one"] {
            let telemetry = Telemetry::new(member);
            telemetry.count(&passage, Ended::Refused, Duration::ZERO);
            telemetry.flush(&*store, "h").await.unwrap();
        }
        assert_eq!(
            store.hash_get("h", "a|b|err").await.unwrap().as_deref(),
            Some("3")
        );
    }
}
