//! Why bytes aren't what they should be: what is wrong, and where, never what stood there.

use std::fmt;

/// The deepest nesting of arrays and objects that is read; it is what common parsers stop at, so
/// that nothing goes through here which the receiver then refuses.
pub(crate) const MAX_DEPTH: usize = 128;

/// What is wrong with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The offset of the byte at which it was noticed, where that says something.
    at: Option<usize>,
    what: &'static str,
}

impl Fault {
    pub(crate) fn at(at: usize, what: &'static str) -> Fault {
        Fault { at: Some(at), what }
    }

    pub(crate) const fn new(what: &'static str) -> Fault {
        Fault { at: None, what }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) => write!(f, "{} at byte {at}", self.what),
            None => f.write_str(self.what),
        }
    }
}
