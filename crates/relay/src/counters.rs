//! What the relay counts.

use crossway_core::code::Code;
use crossway_core::guard::GUARDS;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// What became of an entry that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// Forwarded to its target.
    Relayed,
    /// A reply that was carried home.
    Answered,
    /// Refused, and the sender told.
    Refused,
    /// A command of the daemon's own, run and answered.
    Command,
    /// The site's own traffic, or the daemon's own writing.
    Passed,
    /// An answer under a delivery id that no relay waits for: late, repeated or made up.
    ReplyUnknown,
    /// An answer to a relay that went to somebody else.
    ReplyForeign,
    /// It said nothing that can be understood, and nobody could be told.
    Meaningless,
    /// Written to the dead stream.
    Dead,
    /// It had been deleted from its stream before it was handled.
    Gone,
    /// It had been settled already.
    Settled,
}

const OUTCOMES: [(Outcome, &str); 11] = [
    (Outcome::Relayed, "relayed"),
    (Outcome::Answered, "answered"),
    (Outcome::Refused, "refused"),
    (Outcome::Command, "command"),
    (Outcome::Passed, "passed"),
    (Outcome::ReplyUnknown, "reply_unknown"),
    (Outcome::ReplyForeign, "reply_foreign"),
    (Outcome::Meaningless, "meaningless"),
    (Outcome::Dead, "dead"),
    (Outcome::Gone, "gone"),
    (Outcome::Settled, "already_settled"),
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabel {
    code: &'static str,
    guard: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabel {
    step: &'static str,
}

/// The name of what refuses where no guard does: the store, or a command of the daemon.
pub(crate) const NO_GUARD: &str = "none";

/// All counters of a relay. Labels are fixed sets, so their number is bounded.
pub struct Counters {
    outcomes: Vec<Counter>,
    refusals: Family<RefusalLabel, Counter>,
    translated: Counter,
    untranslated: Counter,
    /// Entries whose `ss` claimed another source than the stream they stood in.
    pub(crate) forged_sources: Counter,
    /// Consumer groups that had vanished and were made again.
    pub(crate) groups_remade: Counter,
    /// Times that the store was found to have lost its data.
    pub(crate) store_losses: Counter,
    /// Reads and writes that the store didn't carry out.
    pub(crate) store_errors: Counter,
    /// Times that this daemon was removed by another and joined anew.
    pub(crate) evictions: Counter,
    /// Entries that were taken off streams that were too long.
    pub(crate) trimmed: Counter,
    /// Streams that are too long because a group hasn't acknowledged.
    pub(crate) streams_held: Gauge,
    /// Spans of crossings that nobody took in time.
    pub(crate) spans_dropped: Counter,
    /// Sites that are registered.
    pub(crate) sites: Gauge,
    /// Direct channels that are open, as the daemon that looks after them knows.
    pub(crate) channels: Gauge,
    /// Policy rules in force.
    pub(crate) rules: Gauge,
    /// Streams that this daemon reads.
    pub(crate) streams: Gauge,
    /// Slices that this daemon holds.
    pub(crate) slices: Gauge,
    /// Live daemons on the store.
    pub(crate) members: Gauge,
    /// Seconds to decide a batch.
    pub(crate) decide: Histogram,
    /// Seconds to hand a batch over, from sending to the store's answer.
    pub(crate) settle: Histogram,
    /// Seconds from reading a batch to its last hand-over.
    pub(crate) crossing: Histogram,
}

/// Buckets from 10 µs to about 5 s.
fn step_histogram() -> Histogram {
    Histogram::new(exponential_buckets(10e-6, 2.0, 20))
}

impl Outcome {
    /// As it stands in metrics and spans.
    pub(crate) fn as_str(self) -> &'static str {
        OUTCOMES
            .iter()
            .find(|(known, _)| *known == self)
            .map_or("unknown", |(_, name)| name)
    }
}

impl Counters {
    /// Counters that are shown in `registry`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Counters {
        let outcomes = Family::<OutcomeLabel, Counter>::default();
        let refusals = Family::<RefusalLabel, Counter>::default();
        let translations = Family::<ResultLabel, Counter>::default();
        let of_result = |result| translations.get_or_create(&ResultLabel { result }).clone();
        let steps =
            Family::<StepLabel, Histogram, fn() -> Histogram>::new_with_constructor(step_histogram);
        let of_step = |step| steps.get_or_create(&StepLabel { step }).clone();
        let counters = Counters {
            outcomes: OUTCOMES
                .iter()
                .map(|(_, outcome)| outcomes.get_or_create(&OutcomeLabel { outcome }).clone())
                .collect(),
            refusals: refusals.clone(),
            translated: of_result("done"),
            untranslated: of_result("failed"),
            forged_sources: Counter::default(),
            groups_remade: Counter::default(),
            channels: Gauge::default(),
            store_losses: Counter::default(),
            store_errors: Counter::default(),
            evictions: Counter::default(),
            spans_dropped: Counter::default(),
            trimmed: Counter::default(),
            streams_held: Gauge::default(),
            sites: Gauge::default(),
            rules: Gauge::default(),
            streams: Gauge::default(),
            slices: Gauge::default(),
            members: Gauge::default(),
            decide: of_step("decide"),
            settle: of_step("settle"),
            crossing: of_step("crossing"),
        };
        for code in Code::ALL {
            for guard in GUARDS.iter().map(|guard| guard.name).chain([NO_GUARD]) {
                let possible = guard == NO_GUARD
                    || matches!(
                        (guard, code),
                        ("policy", Code::Denied)
                            | ("environment", Code::Environment)
                            | ("rate", Code::RateLimited)
                    );
                if possible {
                    drop(refusals.get_or_create(&RefusalLabel {
                        code: code.as_str(),
                        guard,
                    }));
                }
            }
        }
        let relay = registry.sub_registry_with_prefix("crossway_relay");
        relay.register(
            "entries",
            "Entries that were read, by what became of them",
            outcomes,
        );
        relay.register(
            "refusals",
            "Refusals, by code and by the guard that objected",
            refusals,
        );
        relay.register(
            "translations",
            "Parameters and results that were to be translated; those that failed went on as they came",
            translations,
        );
        relay.register(
            "forged_sources",
            "Entries that claimed another source than their stream",
            counters.forged_sources.clone(),
        );
        relay.register(
            "groups_remade",
            "Consumer groups that had vanished and were made again",
            counters.groups_remade.clone(),
        );
        relay.register(
            "store_losses",
            "Times the store was found to have lost its data",
            counters.store_losses.clone(),
        );
        relay.register(
            "store_errors",
            "Reads and writes that the store did not carry out",
            counters.store_errors.clone(),
        );
        relay.register(
            "evictions",
            "Times this daemon was removed by another",
            counters.evictions.clone(),
        );
        relay.register(
            "trimmed_entries",
            "Acknowledged entries that were taken off streams longer than allowed",
            counters.trimmed.clone(),
        );
        relay.register(
            "streams_held",
            "Streams longer than allowed because a group has not acknowledged",
            counters.streams_held.clone(),
        );
        relay.register(
            "spans_dropped",
            "Spans that were dropped because the queue to their exporter was full",
            counters.spans_dropped.clone(),
        );
        relay.register("sites", "Registered sites", counters.sites.clone());
        relay.register(
            "channels",
            "Open direct channels, by the daemon that looks after them",
            counters.channels.clone(),
        );
        relay.register("rules", "Policy rules in force", counters.rules.clone());
        relay.register(
            "streams",
            "Streams that this daemon reads",
            counters.streams.clone(),
        );
        relay.register(
            "slices",
            "Slices of the sites that this daemon holds",
            counters.slices.clone(),
        );
        relay.register(
            "members",
            "Live daemons on the store",
            counters.members.clone(),
        );
        relay.register(
            "step_seconds",
            "Seconds that a step took, by step, for a batch",
            steps,
        );
        counters
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        let at = OUTCOMES.iter().position(|(known, _)| *known == outcome);
        if let Some(counter) = at.and_then(|at| self.outcomes.get(at)) {
            counter.inc();
        }
    }

    /// Counts something that was to be translated.
    pub(crate) fn translated(&self, done: bool) {
        if done {
            self.translated.inc();
        } else {
            self.untranslated.inc();
        }
    }

    pub(crate) fn refuse(&self, code: Code, guard: &'static str) {
        self.refusals
            .get_or_create(&RefusalLabel {
                code: code.as_str(),
                guard,
            })
            .inc();
    }
}
