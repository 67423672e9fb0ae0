//! RESP, versions 2 and 3, as the text of one value. Nothing is said about how it got here: no
//! attributes, no streamed parts.

use std::borrow::Cow;

use super::fault::{Fault, MAX_DEPTH};
use super::json;
use super::node::Node;

/// Reads one value, which must be all there is.
pub(crate) fn decode(data: &[u8]) -> Result<Node<'_>, Fault> {
    let mut reader = Reader { data, at: 0 };
    let node = reader.value(0)?;
    if reader.at < data.len() {
        return Err(Fault::at(reader.at, "something follows the RESP value"));
    }
    Ok(node)
}

/// Writes a value so that [`decode`] gives the same one, digit for digit.
pub(crate) fn encode(node: &Node<'_>, out: &mut Vec<u8>) {
    match node {
        Node::Null => out.extend_from_slice(b"_\r\n"),
        Node::Bool(true) => out.extend_from_slice(b"#t\r\n"),
        Node::Bool(false) => out.extend_from_slice(b"#f\r\n"),
        Node::Number(text) => {
            let kind = if text.contains(['.', 'e', 'E']) {
                b','
            } else if text.parse::<i64>().is_ok() {
                b':'
            } else {
                b'('
            };
            line(kind, text, out);
        }
        Node::String(text) => bulk(text, out),
        Node::Array(items) => {
            line(b'*', &items.len().to_string(), out);
            items.iter().for_each(|item| encode(item, out));
        }
        Node::Object(members) => {
            line(b'%', &members.len().to_string(), out);
            for (key, value) in members {
                bulk(key, out);
                encode(value, out);
            }
        }
    }
}

fn line(kind: u8, text: &str, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn bulk(text: &str, out: &mut Vec<u8>) {
    line(b'$', &text.len().to_string(), out);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

struct Reader<'d> {
    data: &'d [u8],
    at: usize,
}

impl<'d> Reader<'d> {
    fn fault<T>(&self, what: &'static str) -> Result<T, Fault> {
        Err(Fault::at(self.at, what))
    }

    fn value(&mut self, depth: usize) -> Result<Node<'d>, Fault> {
        let Some(kind) = self.data.get(self.at).copied() else {
            return self.fault("it isn't RESP: a value is missing");
        };
        self.at += 1;
        match kind {
            b'+' | b'-' => Ok(Node::String(Cow::Borrowed(self.line()?))),
            b':' | b'(' => {
                let text = self.line()?;
                self.integer(text).map(Node::Number)
            }
            b',' => {
                let text = self.line()?;
                if json::is_number(text) {
                    return Ok(Node::Number(Cow::Borrowed(text)));
                }
                self.fault("a double has no form in JSON")
            }
            b'#' => match self.line()? {
                "t" => Ok(Node::Bool(true)),
                "f" => Ok(Node::Bool(false)),
                _ => self.fault("a boolean is t or f"),
            },
            b'_' => match self.line()? {
                "" => Ok(Node::Null),
                _ => self.fault("a null has something in it"),
            },
            b'$' | b'!' | b'=' => match self.length()? {
                None if kind == b'$' => Ok(Node::Null),
                None => self.fault("a length is missing"),
                Some(length) => {
                    let text = self.text(length)?;
                    if kind != b'=' {
                        return Ok(Node::String(Cow::Borrowed(text)));
                    }
                    match text.split_at_checked(4) {
                        Some((form, text)) if form.ends_with(':') => {
                            Ok(Node::String(Cow::Borrowed(text)))
                        }
                        _ => self.fault("a verbatim string has no form"),
                    }
                }
            },
            b'*' | b'~' | b'>' => match self.length()? {
                None if kind == b'*' => Ok(Node::Null),
                None => self.fault("a length is missing"),
                Some(length) => self.items(length, depth),
            },
            b'%' => match self.length()? {
                None => self.fault("a length is missing"),
                Some(length) => self.members(length, depth),
            },
            _ => self.fault("it isn't RESP: no such kind of value"),
        }
    }

    fn items(&mut self, length: usize, depth: usize) -> Result<Node<'d>, Fault> {
        self.fits(length, 3, depth)?;
        let mut items = Vec::with_capacity(length.min(64));
        for _ in 0..length {
            items.push(self.value(depth + 1)?);
        }
        Ok(Node::Array(items))
    }

    fn members(&mut self, length: usize, depth: usize) -> Result<Node<'d>, Fault> {
        self.fits(length, 6, depth)?;
        let mut members = Vec::with_capacity(length.min(64));
        for _ in 0..length {
            let Some(b'+' | b'$' | b'=') = self.data.get(self.at) else {
                return self.fault("a key of a map isn't text");
            };
            let Node::String(key) = self.value(depth + 1)? else {
                return self.fault("a key of a map isn't text");
            };
            members.push((key, self.value(depth + 1)?));
        }
        json::distinct(members.iter().map(|(key, _)| key.as_ref()))
            .map_err(|()| Fault::at(self.at, "a map names a key twice"))?;
        Ok(Node::Object(members))
    }

    /// Whether so many parts of at least `each` bytes can still follow, and nest.
    fn fits(&self, length: usize, each: usize, depth: usize) -> Result<(), Fault> {
        if depth >= MAX_DEPTH {
            return self.fault("it is nested too deeply");
        }
        let left = self.data.len().saturating_sub(self.at);
        if length.saturating_mul(each) > left {
            return self.fault("it isn't RESP: it ends too early");
        }
        Ok(())
    }

    fn line(&mut self) -> Result<&'d str, Fault> {
        let rest = self.data.get(self.at..).unwrap_or_default();
        let Some(end) = rest
            .iter()
            .position(|byte| *byte == b'\r' || *byte == b'\n')
        else {
            return self.fault("it isn't RESP: a line isn't closed");
        };
        let (text, after) = rest.split_at(end);
        if !after.starts_with(b"\r\n") {
            return self.fault("it isn't RESP: a line ends with CR and LF");
        }
        let text = std::str::from_utf8(text).map_err(|_| Fault::at(self.at, "it isn't UTF-8"))?;
        self.at += end + 2;
        Ok(text)
    }

    /// `None` is the length -1, which says null.
    fn length(&mut self) -> Result<Option<usize>, Fault> {
        let text = self.line()?;
        if text == "-1" {
            return Ok(None);
        }
        match text.parse() {
            Ok(length) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Some(length)),
            _ => self.fault("a length isn't a whole number"),
        }
    }

    fn text(&mut self, length: usize) -> Result<&'d str, Fault> {
        let rest = self.data.get(self.at..).unwrap_or_default();
        let Some((text, after)) = rest.split_at_checked(length) else {
            return self.fault("it isn't RESP: it ends too early");
        };
        if !after.starts_with(b"\r\n") {
            return self.fault("it isn't RESP: a string is longer than it says");
        }
        let text = std::str::from_utf8(text).map_err(|_| Fault::at(self.at, "it isn't UTF-8"))?;
        self.at += length + 2;
        Ok(text)
    }

    fn integer(&self, text: &'d str) -> Result<Cow<'d, str>, Fault> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
            return self.fault("an integer isn't a whole number");
        }
        if json::is_number(text) {
            return Ok(Cow::Borrowed(text));
        }
        // A plus sign and leading zeros, which RESP lets be written and JSON doesn't.
        let digits = unsigned.trim_start_matches('0');
        let digits = if digits.is_empty() { "0" } else { digits };
        let sign = if text.starts_with('-') { "-" } else { "" };
        Ok(Cow::Owned(format!("{sign}{digits}")))
    }
}
