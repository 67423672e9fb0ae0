//! JSON as text: every value stays the slice that it came as, so that digits, order and spacing of
//! what nobody changes are kept. The whole text is checked all the same: its grammar, its depth,
//! and that no object at any depth names a key twice.

use std::borrow::Cow;

use super::fault::{Fault, MAX_DEPTH};
use super::node::Node;

/// A JSON text, split where fields are mapped.
#[derive(Debug)]
pub(crate) enum Document<'t> {
    /// An object: its keys, unescaped, and the texts of its values, in order.
    Object(Vec<(Cow<'t, str>, &'t str)>),
    /// Any other value: it has no fields.
    Other(&'t str),
}

impl<'t> Document<'t> {
    pub(crate) fn read(text: &'t str) -> Result<Document<'t>, Fault> {
        let mut reader = Reader::new(text);
        reader.space();
        let document = if reader.peek() == Some(b'{') {
            let mut members = Vec::with_capacity(8);
            reader.object(0, |reader, key| {
                let start = reader.at;
                reader.skip(1)?;
                members.push((key, reader.since(start)));
                Ok(())
            })?;
            distinct(members.iter().map(|(key, _)| key.as_ref()))
                .map_err(|()| Fault::new("an object names a key twice"))?;
            Document::Object(members)
        } else {
            let start = reader.at;
            reader.skip(0)?;
            Document::Other(reader.since(start))
        };
        reader.end()?;
        Ok(document)
    }
}

/// Fails where two names are the same.
pub(crate) fn distinct<'n>(names: impl Iterator<Item = &'n str> + Clone) -> Result<(), ()> {
    // A sorted copy costs an allocation, which a handful of names doesn't deserve.
    const FEW: usize = 12;
    let mut few = [""; FEW];
    for (count, name) in names.clone().enumerate() {
        let Some(free) = few.get_mut(count) else {
            let mut all: Vec<&str> = names.collect();
            all.sort_unstable();
            return match all.windows(2).any(|pair| pair.first() == pair.last()) {
                true => Err(()),
                false => Ok(()),
            };
        };
        *free = name;
        if few.get(..count).is_some_and(|seen| seen.contains(&name)) {
            return Err(());
        }
    }
    Ok(())
}

/// Reads a whole text as a tree.
pub(crate) fn tree(text: &str) -> Result<Node<'_>, Fault> {
    let mut reader = Reader::new(text);
    reader.space();
    let node = reader.node(0)?;
    reader.end()?;
    Ok(node)
}

/// Whether the text is a number and nothing else.
pub(crate) fn is_number(text: &str) -> bool {
    let mut reader = Reader::new(text);
    reader.number().is_ok() && reader.at == text.len()
}

/// The content of the text of a string, or `None` where the value isn't a string.
pub(crate) fn unquote(value: &str) -> Option<Cow<'_, str>> {
    let mut reader = Reader::new(value);
    reader.string().ok()
}

/// Writes a string.
pub(crate) fn quote(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest
        .bytes()
        .position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\')
    {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let mut chars = from.chars();
        match chars.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some(control) => {
                out.push_str("\\u00");
                let code = u32::from(control);
                for digit in [code >> 4, code & 15] {
                    out.extend(char::from_digit(digit, 16));
                }
            }
            None => {}
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Reader<'t> {
        Reader { text, at: 0 }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn since(&self, start: usize) -> &'t str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn fault<T>(&self, what: &'static str) -> Result<T, Fault> {
        Err(Fault::at(self.at, what))
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn end(&mut self) -> Result<(), Fault> {
        self.space();
        match self.peek() {
            None => Ok(()),
            Some(_) => self.fault("something follows the JSON value"),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), Fault> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if rest.starts_with(word) {
            self.at += word.len();
            return Ok(());
        }
        self.fault("it isn't JSON")
    }

    /// Goes over an object; `member` reads the value of each key.
    fn object(
        &mut self,
        depth: usize,
        mut member: impl FnMut(&mut Reader<'t>, Cow<'t, str>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if depth >= MAX_DEPTH {
            return self.fault("it is nested too deeply");
        }
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            if self.peek() != Some(b'"') {
                return self.fault("it isn't JSON: a key is missing");
            }
            let key = self.string()?;
            self.space();
            self.literal(":")?;
            self.space();
            member(self, key)?;
            self.space();
            match self.peek() {
                Some(b',') => {
                    self.at += 1;
                    self.space();
                }
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.fault("it isn't JSON: an object isn't closed"),
            }
        }
    }

    /// Goes over an array; `item` reads each value.
    fn array(
        &mut self,
        depth: usize,
        mut item: impl FnMut(&mut Reader<'t>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if depth >= MAX_DEPTH {
            return self.fault("it is nested too deeply");
        }
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            item(self)?;
            self.space();
            match self.peek() {
                Some(b',') => {
                    self.at += 1;
                    self.space();
                }
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.fault("it isn't JSON: an array isn't closed"),
            }
        }
    }

    /// Checks a value and leaves it where it is.
    fn skip(&mut self, depth: usize) -> Result<(), Fault> {
        match self.peek() {
            Some(b'{') => {
                let start = self.at;
                let mut keys = Vec::new();
                self.object(depth, |reader, key| {
                    keys.push(key);
                    reader.skip(depth + 1)
                })?;
                distinct(keys.iter().map(Cow::as_ref))
                    .map_err(|()| Fault::at(start, "an object names a key twice"))
            }
            Some(b'[') => self.array(depth, |reader| reader.skip(depth + 1)),
            Some(b'"') => self.string().map(drop),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => self.number(),
        }
    }

    /// Takes a value apart.
    fn node(&mut self, depth: usize) -> Result<Node<'t>, Fault> {
        match self.peek() {
            Some(b'{') => {
                let start = self.at;
                let mut members = Vec::new();
                self.object(depth, |reader, key| {
                    members.push((key, reader.node(depth + 1)?));
                    Ok(())
                })?;
                distinct(members.iter().map(|(key, _)| key.as_ref()))
                    .map_err(|()| Fault::at(start, "an object names a key twice"))?;
                Ok(Node::Object(members))
            }
            Some(b'[') => {
                let mut items = Vec::new();
                self.array(depth, |reader| {
                    items.push(reader.node(depth + 1)?);
                    Ok(())
                })?;
                Ok(Node::Array(items))
            }
            Some(b'"') => Ok(Node::String(self.string()?)),
            Some(b't') => self.literal("true").map(|()| Node::Bool(true)),
            Some(b'f') => self.literal("false").map(|()| Node::Bool(false)),
            Some(b'n') => self.literal("null").map(|()| Node::Null),
            _ => {
                let start = self.at;
                self.number()?;
                Ok(Node::Number(Cow::Borrowed(self.since(start))))
            }
        }
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            return self.fault("it isn't JSON");
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Fault> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<Cow<'t, str>, Fault> {
        if self.peek() != Some(b'"') {
            return self.fault("it isn't JSON: a string is missing");
        }
        self.at += 1;
        let mut plain = self.at;
        let mut escaped: Option<String> = None;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let rest = self.since(plain);
                    self.at += 1;
                    return Ok(match escaped {
                        None => Cow::Borrowed(rest),
                        Some(text) => Cow::Owned(text + rest),
                    });
                }
                Some(b'\\') => {
                    let before = self.since(plain);
                    let text = escaped.get_or_insert_default();
                    text.push_str(before);
                    self.at += 1;
                    let read = self.escape()?;
                    if let Some(text) = &mut escaped {
                        text.push(read);
                    }
                    plain = self.at;
                }
                Some(0..0x20) => return self.fault("a string has a control character"),
                Some(_) => self.at += 1,
                None => return self.fault("it isn't JSON: a string isn't closed"),
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<char, Fault> {
        let read = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            _ => return self.fault("a string has an escape that JSON doesn't know"),
        };
        self.at += 1;
        Ok(read)
    }

    fn unicode(&mut self) -> Result<char, Fault> {
        const LONE: &str = "a string has half of a surrogate pair";
        let first = self.four_digits()?;
        if let Some(read) = char::from_u32(first) {
            return Ok(read);
        }
        if first >= 0xDC00 || self.literal("\\u").is_err() {
            return self.fault(LONE);
        }
        let second = self.four_digits()?;
        let (0xD800..0xDC00, 0xDC00..0xE000) = (first, second) else {
            return self.fault(LONE);
        };
        let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        char::from_u32(code).ok_or(Fault::at(self.at, LONE))
    }

    fn four_digits(&mut self) -> Result<u32, Fault> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            match digit {
                Some(digit) => code = code * 16 + digit,
                None => return self.fault("\\u wants four hexadecimal digits"),
            }
            self.at += 1;
        }
        Ok(code)
    }
}
