//! A span that has ended, as a value. Whoever exports it knows how it is written elsewhere.

use std::borrow::Cow;

use super::{SpanId, TraceParent};

/// One piece of work on a message, in a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its trace and its own id.
    pub context: TraceParent,
    /// The span that caused it; `None` for the first of a trace.
    pub parent: Option<SpanId>,
    /// What was done, of few different names.
    pub name: String,
    /// When it began, in nanoseconds since the epoch.
    pub start_ns: u64,
    /// When it ended, in nanoseconds since the epoch, never before it began.
    pub end_ns: u64,
    /// What is known of it; no two of one name.
    pub attributes: Vec<Attribute>,
    /// Its steps, in order.
    pub events: Vec<Event>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

/// Something that is known, by its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// The name, dotted.
    pub name: &'static str,
    /// What it is.
    pub value: Value,
}

/// What an attribute says.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

/// A step of a span.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What happened.
    pub name: &'static str,
    /// When, in nanoseconds since the epoch.
    pub at_ns: u64,
    /// What is known of it.
    pub attributes: Vec<Attribute>,
}

impl Attribute {
    /// Text by its name.
    #[must_use]
    pub fn text(name: &'static str, text: impl Into<Cow<'static, str>>) -> Attribute {
        let value = Value::Text(text.into());
        Attribute { name, value }
    }

    /// A number by its name; one that is beyond 63 bits is given as the largest.
    #[must_use]
    pub fn number(name: &'static str, number: u64) -> Attribute {
        let value = Value::Number(i64::try_from(number).unwrap_or(i64::MAX));
        Attribute { name, value }
    }
}
