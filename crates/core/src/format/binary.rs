//! What MessagePack and CBOR share: a bounded reader, and numbers that must not change.

use std::borrow::Cow;

use super::decimal::Decimal;
use super::fault::{Fault, MAX_DEPTH};
use super::json;
use super::node::Node;

/// A number as 64 bits hold it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Integer(i128),
    Float(f64),
}

/// The number that a text names, where 64 bits hold exactly that one. A float counts as exact
/// where its shortest decimal is the number that was written.
pub(crate) fn number(text: &str) -> Result<Number, Fault> {
    const LOST: Fault = Fault::new("64 bits can't hold a number without changing it");
    if !text.contains(['.', 'e', 'E']) && text != "-0" {
        let value: i128 = text.parse().map_err(|_| LOST)?;
        return match (-(1 << 64)..(1 << 64)).contains(&value) {
            true => Ok(Number::Integer(value)),
            false => Err(LOST),
        };
    }
    let value: f64 = text.parse().map_err(|_| LOST)?;
    if !value.is_finite() || Decimal::read(text) != Decimal::read(&float_text(value)) {
        return Err(LOST);
    }
    Ok(Number::Float(value))
}

fn float_text(value: f64) -> String {
    format!("{value:?}")
}

pub(crate) fn integer<'d>(value: impl Into<i128>) -> Node<'d> {
    Node::Number(Cow::Owned(value.into().to_string()))
}

pub(crate) fn float<'d>(value: f64) -> Result<Node<'d>, Fault> {
    match value.is_finite() {
        true => Ok(Node::Number(Cow::Owned(float_text(value)))),
        false => Err(Fault::new("a number is infinite or none")),
    }
}

pub(crate) struct Reader<'d> {
    data: &'d [u8],
    at: usize,
}

impl<'d> Reader<'d> {
    pub(crate) fn new(data: &'d [u8]) -> Reader<'d> {
        Reader { data, at: 0 }
    }

    pub(crate) fn fault<T>(&self, what: &'static str) -> Result<T, Fault> {
        Err(Fault::at(self.at, what))
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.data.get(self.at).copied()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Fault> {
        match self.peek() {
            Some(byte) => {
                self.at += 1;
                Ok(byte)
            }
            None => self.fault("it ends too early"),
        }
    }

    pub(crate) fn bytes(&mut self, length: u64) -> Result<&'d [u8], Fault> {
        let rest = self.data.get(self.at..).unwrap_or_default();
        let split = usize::try_from(length)
            .ok()
            .and_then(|length| rest.split_at_checked(length));
        match split {
            Some((bytes, _)) => {
                self.at += bytes.len();
                Ok(bytes)
            }
            None => self.fault("it ends too early"),
        }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let at = self.at;
        let bytes = self.bytes(N as u64)?;
        bytes
            .try_into()
            .map_err(|_| Fault::at(at, "it ends too early"))
    }

    pub(crate) fn text(&mut self, length: u64) -> Result<&'d str, Fault> {
        let at = self.at;
        std::str::from_utf8(self.bytes(length)?).map_err(|_| Fault::at(at, "text isn't UTF-8"))
    }

    /// Before the parts of an array or map: whether one may nest here and so many can follow.
    pub(crate) fn enter(&self, parts: u64, depth: usize) -> Result<(), Fault> {
        if depth >= MAX_DEPTH {
            return self.fault("it is nested too deeply");
        }
        if parts > self.data.len().saturating_sub(self.at) as u64 {
            return self.fault("it ends too early");
        }
        Ok(())
    }

    pub(crate) fn object(&self, members: Vec<(Cow<'d, str>, Node<'d>)>) -> Result<Node<'d>, Fault> {
        match json::distinct(members.iter().map(|(key, _)| key.as_ref())) {
            Ok(()) => Ok(Node::Object(members)),
            Err(()) => self.fault("a map names a key twice"),
        }
    }

    pub(crate) fn end(&self) -> Result<(), Fault> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.fault("something follows the value"),
        }
    }
}
