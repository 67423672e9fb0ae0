//! Rate limits: a token bucket that is one number, with the time as an argument.
//!
//! A bucket holds the moment at which it will be full again. Taking tokens moves that moment on;
//! it may lie at most a whole burst ahead. A bucket whose moment has passed is as good as a new
//! one, so it needn't be kept.

use std::time::Duration;

/// How many messages may pass: so many a second in the long run, so many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Between two tokens, in nanoseconds.
    interval_ns: u64,
    burst: u32,
}

/// The numbers can't be a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a rate is from 0.001 to 1000000 a second, with a burst of at least 1")]
pub struct RateError;

impl Rate {
    /// A rate of `per_second` tokens, of which `burst` may be saved up.
    ///
    /// # Errors
    /// [`RateError`] where `per_second` is out of range or not a number, or `burst` is 0.
    pub fn new(per_second: f64, burst: u32) -> Result<Rate, RateError> {
        if !(0.001..=1e6).contains(&per_second) || burst == 0 {
            return Err(RateError);
        }
        // In range: at most 1e12.
        let interval_ns = (1e9 / per_second).ceil() as u64;
        Ok(Rate { interval_ns, burst })
    }

    /// The most tokens at once.
    #[must_use]
    pub fn burst(self) -> u32 {
        self.burst
    }

    fn span(self, tokens: u32) -> u64 {
        self.interval_ns.saturating_mul(u64::from(tokens))
    }
}

/// The limit that a message would break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exceeded {
    /// It may pass after this time.
    For(Duration),
    /// It wants more at once than the burst, given here, ever holds.
    Ever(u32),
}

/// The tokens of one sender, or of one pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bucket {
    /// When it is full again, in nanoseconds of the caller's clock.
    full_at: u64,
    /// Between two tokens, by the rate that `full_at` was reckoned with.
    interval_ns: u64,
}

impl Bucket {
    /// Whether `tokens` could be taken at `now`, which is a time since any fixed moment.
    ///
    /// # Errors
    /// [`Exceeded`], with the time to wait.
    pub fn check(&self, rate: Rate, tokens: u32, now: Duration) -> Result<(), Exceeded> {
        if tokens > rate.burst {
            return Err(Exceeded::Ever(rate.burst));
        }
        let (now, most) = (nanos(now), rate.span(rate.burst));
        let ahead = self.ahead(rate, now).saturating_add(rate.span(tokens));
        match ahead.checked_sub(most) {
            None | Some(0) => Ok(()),
            Some(wait) => Err(Exceeded::For(Duration::from_nanos(wait))),
        }
    }

    /// Takes tokens, whether or not they are there; ask [`Bucket::check`] first.
    pub fn take(&mut self, rate: Rate, tokens: u32, now: Duration) {
        let now = nanos(now);
        let ahead = self.ahead(rate, now).saturating_add(rate.span(tokens));
        self.full_at = now.saturating_add(ahead);
        self.interval_ns = rate.interval_ns;
    }

    /// Whether it is full, and so the same as a new one.
    #[must_use]
    pub fn is_full(&self, now: Duration) -> bool {
        self.full_at <= nanos(now)
    }

    /// How far the moment of being full lies ahead, as many tokens as before where the rate has
    /// changed. It is never more than a whole burst, so a clock that jumps back makes nobody wait
    /// for longer than that.
    fn ahead(&self, rate: Rate, now: u64) -> u64 {
        let mut ahead = self.full_at.saturating_sub(now);
        if ahead > 0 && self.interval_ns != rate.interval_ns {
            let scaled = u128::from(ahead) * u128::from(rate.interval_ns);
            let rescaled = scaled / u128::from(self.interval_ns.max(1));
            ahead = u64::try_from(rescaled).unwrap_or(u64::MAX);
        }
        ahead.min(rate.span(rate.burst))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spend(bucket: &mut Bucket, rate: Rate, tokens: u32, now: Duration) -> bool {
        let passed = bucket.check(rate, tokens, now).is_ok();
        if passed {
            bucket.take(rate, tokens, now);
        }
        passed
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for (per_second, burst) in [(0.0, 1), (-1.0, 1), (f64::NAN, 1), (2e6, 1), (1.0, 0)] {
            assert_eq!(Rate::new(per_second, burst), Err(RateError));
        }
    }

    #[test]
    fn a_batch_beyond_the_burst_never_passes() {
        let rate = Rate::new(1.0, 3).unwrap();
        let check = |tokens| Bucket::default().check(rate, tokens, Duration::ZERO);
        assert_eq!((check(3), check(4)), (Ok(()), Err(Exceeded::Ever(3))));
    }

    #[test]
    fn waiting_as_long_as_was_said_is_enough_and_less_is_not() {
        let (rate, mut bucket) = (Rate::new(10.0, 2).unwrap(), Bucket::default());
        let now = Duration::from_secs(5);
        bucket.take(rate, 2, now);
        let wait = Duration::from_millis(100);
        assert_eq!(bucket.check(rate, 1, now), Err(Exceeded::For(wait)));
        let just_before = now + wait - Duration::from_nanos(1);
        assert!(bucket.check(rate, 1, just_before).is_err());
        assert!(bucket.check(rate, 1, now + wait).is_ok());
    }

    #[test]
    fn a_changed_rate_leaves_as_many_tokens_as_there_were() {
        let (slow, fast) = (Rate::new(0.001, 5).unwrap(), Rate::new(1000.0, 5).unwrap());
        let (mut bucket, now) = (Bucket::default(), Duration::from_secs(1));
        bucket.take(slow, 3, now);
        assert!(bucket.check(fast, 2, now).is_ok());
        assert_eq!(
            bucket.check(fast, 3, now),
            Err(Exceeded::For(Duration::from_millis(1)))
        );
    }

    proptest! {
        #[test]
        fn no_window_sees_more_than_the_burst_and_what_it_refills(
            per_second in 1.0..1000.0_f64,
            burst in 1..20_u32,
            steps in prop::collection::vec((0..50_000_000_u64, 1..4_u32), 1..200),
        ) {
            let (rate, mut bucket) = (Rate::new(per_second, burst).unwrap(), Bucket::default());
            let (mut now, mut passed) = (0_u64, Vec::new());
            for (step, tokens) in steps {
                now += step;
                if spend(&mut bucket, rate, tokens, Duration::from_nanos(now)) {
                    passed.push((now, tokens));
                }
            }
            for (first, (start, _)) in passed.iter().enumerate() {
                let mut sum = 0;
                for (at, tokens) in &passed[first..] {
                    sum += tokens;
                    let refilled = (at - start) as f64 / 1e9 * per_second;
                    prop_assert!(f64::from(sum) <= f64::from(burst) + refilled + 1e-6);
                }
            }
        }

        #[test]
        fn an_idle_bucket_refills_wholly(per_second in 0.01..1000.0_f64, burst in 1..20_u32, at in 0..u64::MAX / 4) {
            let (rate, mut bucket) = (Rate::new(per_second, burst).unwrap(), Bucket::default());
            let now = Duration::from_nanos(at);
            prop_assert!(spend(&mut bucket, rate, burst, now));
            prop_assert!(!bucket.is_full(now));
            let later = now + Duration::from_nanos(rate.span(burst));
            prop_assert!(bucket.is_full(later));
            prop_assert!(spend(&mut bucket, rate, burst, later));
        }

        #[test]
        fn a_clock_that_jumps_back_makes_nobody_wait_longer_than_a_burst(
            burst in 1..20_u32, before in any::<u64>(), after in 0..u64::MAX / 4,
        ) {
            let (rate, mut bucket) = (Rate::new(10.0, burst).unwrap(), Bucket::default());
            bucket.take(rate, burst, Duration::from_nanos(before));
            let patient = Duration::from_nanos(after) + Duration::from_nanos(rate.span(burst));
            let wait = match bucket.check(rate, 1, Duration::from_nanos(after)) {
                Err(Exceeded::For(wait)) => wait,
                _ => Duration::ZERO,
            };
            prop_assert!(Duration::from_nanos(after) + wait <= patient);
        }
    }
}
