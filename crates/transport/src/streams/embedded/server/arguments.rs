//! Taking arguments one by one.

use bytes::Bytes;
use crossway_core::entry::EntryId;

use crate::streams::embedded::engine::Refusal;

/// The arguments after a command's name.
#[derive(Debug)]
pub(super) struct Arguments {
    rest: std::vec::IntoIter<Bytes>,
}

impl Arguments {
    pub(super) fn new(arguments: Vec<Bytes>) -> Arguments {
        Arguments {
            rest: arguments.into_iter(),
        }
    }

    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn next(&mut self) -> Option<Bytes> {
        self.rest.next()
    }

    /// The next argument, which has to be there.
    pub(super) fn need(&mut self) -> Result<Bytes, Refusal> {
        self.rest.next().ok_or(Refusal::SYNTAX)
    }

    pub(super) fn peek(&self) -> Option<&Bytes> {
        self.rest.as_slice().first()
    }

    pub(super) fn peek_second(&self) -> Option<&Bytes> {
        self.rest.as_slice().get(1)
    }

    /// Takes the next argument if it is this word, in whatever case.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let hit = self
            .peek()
            .is_some_and(|next| next.eq_ignore_ascii_case(word.as_bytes()));
        if hit {
            self.rest.next();
        }
        hit
    }

    pub(super) fn rest(self) -> Vec<Bytes> {
        self.rest.collect()
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Result<(), Refusal> {
        if self.rest.len() == 0 {
            Ok(())
        } else {
            Err(Refusal::SYNTAX)
        }
    }

    pub(super) fn integer(&mut self) -> Result<i64, Refusal> {
        integer(&self.need()?)
    }
}

/// A whole number as the protocol writes it: no plus sign, no zeros before it.
pub(super) fn integer(text: &[u8]) -> Result<i64, Refusal> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let plain = matches!(digits, [b'0'] if text.len() == 1) || matches!(digits, [b'1'..=b'9', ..]);
    let number = std::str::from_utf8(text)
        .ok()
        .filter(|_| plain)
        .and_then(|text| text.parse().ok());
    number.ok_or(Refusal::NOT_AN_INTEGER)
}

fn unsigned(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text)
        .ok()
        .filter(|_| digits)
        .and_then(|text| text.parse().ok())
}

/// An id, complete or only milliseconds; `seq` stands in for what is left out.
pub(super) fn entry_id(text: &[u8], seq: u64) -> Result<EntryId, Refusal> {
    let id = match text
        .iter()
        .position(|byte| *byte == b'-')
        .and_then(|at| text.split_at_checked(at))
    {
        Some((ms, rest)) => unsigned(ms)
            .zip(rest.get(1..).and_then(unsigned))
            .map(|(ms, seq)| EntryId::new(ms, seq)),
        None => unsigned(text).map(|ms| EntryId::new(ms, seq)),
    };
    id.ok_or(Refusal::INVALID_ID)
}

/// The beginning of an interval: `-`, `+`, an id, or `(` and an id to leave that one out.
pub(super) fn interval_start(text: &[u8]) -> Result<EntryId, Refusal> {
    match text {
        b"-" => Ok(EntryId::ZERO),
        b"+" => Ok(EntryId::MAX),
        [b'(', id @ ..] => entry_id(id, 0)?
            .next()
            .ok_or(Refusal::of("ERR invalid start ID for the interval")),
        id => entry_id(id, 0),
    }
}

/// The end of an interval.
pub(super) fn interval_end(text: &[u8]) -> Result<EntryId, Refusal> {
    match text {
        b"-" => Ok(EntryId::ZERO),
        b"+" => Ok(EntryId::MAX),
        [b'(', id @ ..] => entry_id(id, u64::MAX)?
            .previous()
            .ok_or(Refusal::of("ERR invalid end ID for the interval")),
        id => entry_id(id, u64::MAX),
    }
}
