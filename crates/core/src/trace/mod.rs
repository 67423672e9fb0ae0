//! Traces: the context that a message carries, and the spans that crossings leave.
//!
//! The context is that of the W3C recommendation Trace Context, level 2. A [`TraceParent`] can't
//! hold one that the recommendation forbids; what doesn't parse is nobody's business here and goes
//! on as it came.

mod span;

use std::fmt;
use std::str::FromStr;

pub use span::{Attribute, Event, Span, Value};

/// The length of a context of version 00 as text, in bytes.
const LENGTH: usize = 55;

/// Flag: whoever called has recorded its span.
const SAMPLED: u8 = 0x01;
/// Flag: the trace's id is random in its last seven bytes.
const RANDOM: u8 = 0x02;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $bytes:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// An id of these bytes; `None` where all of them are zero, which means that there is none.
            #[must_use]
            pub fn new(bytes: [u8; $bytes]) -> Option<$name> {
                (bytes != [0; $bytes]).then_some($name(bytes))
            }

            /// Its bytes.
            #[must_use]
            pub const fn bytes(&self) -> &[u8; $bytes] {
                &self.0
            }

            fn parse(text: &[u8]) -> Option<$name> {
                let mut bytes = [0; $bytes];
                if text.len() != 2 * $bytes {
                    return None;
                }
                for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
                    *byte = octet(digits)?;
                }
                $name::new(bytes)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}

ids! {
    /// The id of a trace, not zero.
    TraceId, 16;
    /// The id of a span, not zero.
    SpanId, 8;
}

/// Two lower-case hex digits.
fn octet(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    match digits {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
}

/// Which span of which trace a message belongs to, as it stands in `tp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: TraceId,
    /// The span of whoever sent the message.
    pub span: SpanId,
    flags: u8,
}

impl TraceParent {
    /// The context of a span that is recorded, in a trace that begins with it.
    #[must_use]
    pub fn beginning(trace: TraceId, span: SpanId) -> TraceParent {
        TraceParent {
            trace,
            span,
            flags: SAMPLED | RANDOM,
        }
    }

    /// The context of a span below this one, in the same trace and sampled as it is.
    #[must_use]
    pub fn child(&self, span: SpanId) -> TraceParent {
        TraceParent { span, ..*self }
    }

    /// Its flags as they are written.
    #[must_use]
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether spans of this trace are to be recorded.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, self.flags)
    }
}

/// The text is no trace context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a trace context is 00-TRACE-SPAN-FLAGS, with 32, 16 and 2 lower-case hex digits")]
pub struct TraceParentError;

impl FromStr for TraceParent {
    type Err = TraceParentError;

    fn from_str(text: &str) -> Result<TraceParent, TraceParentError> {
        parse(text.as_bytes()).ok_or(TraceParentError)
    }
}

fn parse(text: &[u8]) -> Option<TraceParent> {
    let (known, more) = text.split_at_checked(LENGTH)?;
    // A later version may have more to say, and is read as far as it is known.
    let fits = match octet(known.get(..2)?)? {
        0x00 => more.is_empty(),
        0xff => false,
        _ => more.is_empty() || more.starts_with(b"-"),
    };
    let dashes = [2, 35, 52].iter().all(|at| known.get(*at) == Some(&b'-'));
    if !(fits && dashes) {
        return None;
    }
    Some(TraceParent {
        trace: TraceId::parse(known.get(3..35)?)?,
        span: SpanId::parse(known.get(36..52)?)?,
        flags: octet(known.get(53..55)?)? & (SAMPLED | RANDOM),
    })
}

/// The share of new traces that are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio(f64);

/// The number can't be a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a share is a number from 0.0 (none) to 1.0 (all)")]
pub struct RatioError;

impl Ratio {
    /// All of them.
    pub const ALL: Ratio = Ratio(1.0);

    /// A share of new traces.
    ///
    /// # Errors
    /// [`RatioError`] where it isn't from 0 to 1.
    pub fn new(share: f64) -> Result<Ratio, RatioError> {
        if (0.0..=1.0).contains(&share) {
            Ok(Ratio(share))
        } else {
            Err(RatioError)
        }
    }

    /// As a number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Whether a trace is among those that are recorded. Everybody who goes by its id and the
    /// same share comes to the same answer.
    #[must_use]
    pub fn takes(self, trace: TraceId) -> bool {
        // The last seven bytes are those that a trace's id promises to be random.
        let random = trace
            .0
            .iter()
            .skip(9)
            .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        // 56 bits are counted in parts of 2^53, which a float holds exactly.
        ((random >> 3) as f64) < self.0 * (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_read_and_written_as_it_was() {
        let parent: TraceParent = GIVEN.parse().unwrap();
        assert_eq!(parent.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.span.to_string(), "00f067aa0ba902b7");
        assert!(parent.is_sampled());
        assert_eq!(parent.to_string(), GIVEN);
        let unsampled = GIVEN.replace("-01", "-00").parse::<TraceParent>().unwrap();
        assert!(!unsampled.is_sampled());
    }

    #[test]
    fn what_the_recommendation_forbids_is_no_context() {
        for text in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01more",
            "00-4bf92f3577b34da6a3ce929d0e0e473ä-00f067aa0ba902b7-01",
        ] {
            assert_eq!(text.parse::<TraceParent>(), Err(TraceParentError), "{text}");
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known_and_written_as_ours() {
        let later = GIVEN.replacen("00-", "cc-", 1) + "-what-the-future-will-be";
        let parent: TraceParent = later.parse().unwrap();
        assert_eq!(parent.to_string(), GIVEN);
    }

    #[test]
    fn a_share_is_from_none_to_all() {
        for share in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Ratio::new(share), Err(RatioError), "{share}");
        }
        let last = TraceId::new([255; 16]).unwrap();
        let first = TraceId::new([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert!(Ratio::ALL.takes(last) && Ratio::ALL.takes(first));
        let none = Ratio::new(0.0).unwrap();
        assert!(!none.takes(last) && !none.takes(first));
        let half = Ratio::new(0.5).unwrap();
        assert!(!half.takes(last) && half.takes(first));
    }

    proptest! {
        #[test]
        fn every_context_survives_its_text(trace in any::<[u8; 16]>(), span in any::<[u8; 8]>(), sampled in any::<bool>()) {
            prop_assume!(trace != [0; 16] && span != [0; 8]);
            let parent = TraceParent {
                trace: TraceId::new(trace).unwrap(),
                span: SpanId::new(span).unwrap(),
                flags: u8::from(sampled),
            };
            let text = parent.to_string();
            prop_assert_eq!(text.len(), LENGTH);
            prop_assert_eq!(text.parse::<TraceParent>(), Ok(parent));
        }

        #[test]
        fn no_text_is_too_much(text in any::<String>()) {
            let _ = text.parse::<TraceParent>();
        }

        #[test]
        fn what_is_read_is_written_and_read_the_same(text in "(00|01|fe)-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?") {
            if let Ok(parent) = text.parse::<TraceParent>() {
                prop_assert_eq!(parent.to_string().parse(), Ok(parent));
            }
        }

        #[test]
        fn a_larger_share_takes_whatever_a_smaller_one_takes(trace in any::<[u8; 16]>(), a in 0.0..=1.0, b in 0.0..=1.0) {
            prop_assume!(trace != [0; 16]);
            let trace = TraceId::new(trace).unwrap();
            let (small, large) = (Ratio::new(f64::min(a, b)).unwrap(), Ratio::new(f64::max(a, b)).unwrap());
            prop_assert!(!small.takes(trace) || large.takes(trace));
        }
    }
}
