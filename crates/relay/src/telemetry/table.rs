//! Counts for each pair, and how they lie in a hash.
//!
//! A pair has the fields `SOURCE|TARGET|ok`, `…|err`, `…|translated`, `…|latency_us` (a sum),
//! `…|latency_buckets` (a list) and `…|command|NAME`. A site id has no `|`, and a command's name
//! stands last, so that they read back without escaping.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::{Value, json};

use super::Ended;

/// The name under which everything beyond the bounds is counted.
pub(super) const OTHER: &str = "_other";

/// The most pairs that are kept: an answer with all of them stays well under a megabyte.
const MAX_PAIRS: usize = 500;

/// The most command names that are kept for a pair.
const MAX_COMMANDS: usize = 32;

/// Buckets of the latency, the last for all that is longer; the first ends at [`FIRST_US`], and
/// each ends at twice what the one before does, the last but one at 26 s.
const BUCKETS: usize = 21;

const FIRST_US: u64 = 50;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Tally {
    ok: u64,
    err: u64,
    translated: u64,
    latency_us: u64,
    buckets: [u64; BUCKETS],
    commands: BTreeMap<String, u64>,
}

/// All pairs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Table {
    pairs: BTreeMap<(String, String), Tally>,
}

fn add(to: &mut u64, more: u64) {
    *to = to.saturating_add(more);
}

impl Tally {
    fn count(&self) -> u64 {
        self.ok.saturating_add(self.err)
    }

    fn command(&mut self, name: &str, times: u64) {
        let room = self.commands.len() < MAX_COMMANDS;
        let name = if room || self.commands.contains_key(name) {
            name
        } else {
            OTHER
        };
        add(self.commands.entry(name.to_owned()).or_default(), times);
    }

    /// The end of the bucket that the share `hundredths` of all falls into, in ms.
    fn percentile(&self, hundredths: u64) -> f64 {
        let all: u64 = self.buckets.iter().fold(0, |sum, n| sum.saturating_add(*n));
        let wanted = all.saturating_mul(hundredths).div_ceil(100);
        let mut seen: u64 = 0;
        let mut end = FIRST_US;
        for n in self.buckets {
            seen = seen.saturating_add(n);
            if seen >= wanted {
                break;
            }
            end = end.saturating_mul(2);
        }
        if all == 0 { 0.0 } else { end as f64 / 1000.0 }
    }
}

impl Table {
    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    fn tally(&mut self, source: &str, target: &str) -> &mut Tally {
        let pair = (source.to_owned(), target.to_owned());
        let room = self.pairs.len() < MAX_PAIRS || self.pairs.contains_key(&pair);
        let pair = if room {
            pair
        } else {
            (OTHER.to_owned(), OTHER.to_owned())
        };
        self.pairs.entry(pair).or_default()
    }

    pub(super) fn count(
        &mut self,
        source: &str,
        target: &str,
        command: &str,
        ended: Ended,
        latency: Duration,
    ) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let tally = self.tally(source, target);
        match ended {
            Ended::Refused => add(&mut tally.err, 1),
            Ended::Relayed => add(&mut tally.ok, 1),
            Ended::Translated => {
                add(&mut tally.ok, 1);
                add(&mut tally.translated, 1);
            }
        }
        add(&mut tally.latency_us, us);
        let ends = (0..).map(|doublings| FIRST_US << doublings);
        let at = ends.take(BUCKETS - 1).take_while(|end| us > *end).count();
        if let Some(bucket) = tally.buckets.get_mut(at) {
            add(bucket, 1);
        }
        tally.command(command, 1);
    }

    pub(super) fn merge(&mut self, other: &Table) {
        for ((source, target), more) in &other.pairs {
            let tally = self.tally(source, target);
            add(&mut tally.ok, more.ok);
            add(&mut tally.err, more.err);
            add(&mut tally.translated, more.translated);
            add(&mut tally.latency_us, more.latency_us);
            for (bucket, n) in tally.buckets.iter_mut().zip(more.buckets) {
                add(bucket, n);
            }
            for (name, times) in &more.commands {
                tally.command(name, *times);
            }
        }
    }

    /// Reads a hash; fields that are something else are passed over.
    pub(super) fn parse(hash: &HashMap<String, String>) -> Table {
        let mut table = Table::default();
        for (field, value) in hash {
            let mut parts = field.splitn(3, '|');
            let (Some(source), Some(target), Some(what)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let pair = (source.to_owned(), target.to_owned());
            let tally = table.pairs.entry(pair).or_default();
            let number = value.parse().unwrap_or(0);
            match what {
                "ok" => tally.ok = number,
                "err" => tally.err = number,
                "translated" => tally.translated = number,
                "latency_us" => tally.latency_us = number,
                "latency_buckets" => {
                    for (bucket, n) in tally.buckets.iter_mut().zip(value.split(',')) {
                        *bucket = n.parse().unwrap_or(0);
                    }
                }
                what => {
                    if let Some(name) = what.strip_prefix("command|") {
                        tally.commands.insert(name.to_owned(), number);
                    }
                }
            }
        }
        table
    }

    /// The fields of the hash that holds this.
    pub(super) fn fields(&self) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        for ((source, target), tally) in &self.pairs {
            let buckets: Vec<String> = tally.buckets.iter().map(u64::to_string).collect();
            let mut field = |what: &str, value: String| {
                fields.push((format!("{source}|{target}|{what}"), value));
            };
            field("ok", tally.ok.to_string());
            field("err", tally.err.to_string());
            field("translated", tally.translated.to_string());
            field("latency_us", tally.latency_us.to_string());
            field("latency_buckets", buckets.join(","));
            for (name, times) in &tally.commands {
                field(&format!("command|{name}"), times.to_string());
            }
        }
        fields
    }

    /// The answer to `relay_stats`, sorted by source and target.
    pub(super) fn report(&self) -> Value {
        let mut sums = [0_u64; 3];
        let pairs: Vec<Value> = self
            .pairs
            .iter()
            .map(|((source, target), tally)| {
                for (sum, n) in sums.iter_mut().zip([tally.ok, tally.err, tally.translated]) {
                    add(sum, n);
                }
                let average = tally.latency_us / tally.count().max(1);
                json!({
                    "source": source,
                    "target": target,
                    "count": tally.count(),
                    "ok": tally.ok,
                    "err": tally.err,
                    "translated": tally.translated,
                    "avg_latency_ms": average as f64 / 1000.0,
                    "p50_latency_ms": tally.percentile(50),
                    "p90_latency_ms": tally.percentile(90),
                    "p99_latency_ms": tally.percentile(99),
                    "commands": tally.commands,
                })
            })
            .collect();
        let [ok, err, translated] = sums;
        json!({
            "pair_count": pairs.len(),
            "pairs": pairs,
            "total_relays": ok.saturating_add(err),
            "total_ok": ok,
            "total_err": err,
            "total_translated": translated,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_reads_back_from_its_fields_and_adds_up() {
        let mut table = Table::default();
        table.count(
            "a",
            "b",
            "get|it",
            Ended::Relayed,
            Duration::from_micros(120),
        );
        table.count("a", "b", "put", Ended::Refused, Duration::from_secs(100));
        let hash: HashMap<String, String> = table.fields().into_iter().collect();
        let mut read = Table::parse(&hash);
        assert_eq!(read, table);
        read.merge(&table);
        let report = read.report();
        assert_eq!(report["total_relays"], 4);
        assert_eq!(report["total_err"], 2);
        assert_eq!(
            report["pairs"][0]["commands"],
            json!({"get|it": 2, "put": 2})
        );
        assert_eq!(report["pairs"][0]["p50_latency_ms"], 0.2);
    }

    #[test]
    fn pairs_and_commands_beyond_the_bounds_are_counted_as_other() {
        let mut table = Table::default();
        for n in 0..2 * MAX_PAIRS {
            table.count("a", &n.to_string(), "x", Ended::Relayed, Duration::ZERO);
            table.count("a", "0", &n.to_string(), Ended::Relayed, Duration::ZERO);
        }
        assert_eq!(table.pairs.len(), MAX_PAIRS + 1);
        let report = table.report();
        assert_eq!(report["total_relays"], 4 * MAX_PAIRS);
        let commands = &table.pairs[&("a".to_owned(), "0".to_owned())].commands;
        assert_eq!(commands.len(), MAX_COMMANDS + 1);
    }
}
