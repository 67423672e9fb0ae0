//! How long to wait before the next attempt to connect.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);

/// Pauses that double from 100 ms to 2 s. Each is shortened by up to half at random, so that the
/// connections of many daemons don't all come back at the same instant.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after one more failure.
    pub(crate) fn next(&mut self, random: u64) -> Duration {
        let longest = FIRST.saturating_mul(1 << self.failures.min(8)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let half = longest / 2;
        let share = u32::try_from(random % 1024).unwrap_or_default();
        half + half * share / 1024
    }

    /// Starts again from the shortest.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A number that differs for each call and process; good enough to spread load, for nothing else.
pub(crate) fn spread() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_start_again() {
        let mut backoff = Backoff::default();
        let longest: Vec<u128> = (0..8).map(|_| backoff.next(1023).as_millis()).collect();
        assert_eq!(longest, [99, 199, 399, 799, 1599, 1999, 1999, 1999]);
        backoff.reset();
        assert_eq!(backoff.next(0), Duration::from_millis(50));
    }
}
