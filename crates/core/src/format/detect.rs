//! Which format data is in: each pattern that holds says how sure it is.

use std::cell::OnceCell;

use regex::bytes::{Regex, RegexBuilder};

use super::codec::Codec;
use super::json::Document;
use super::registry::Format;

/// Below this nothing counts as detected.
const ENOUGH: f64 = 0.5;
/// Bytes of a compiled pattern; they come from users, and each is held against every message.
const MAX_REGEX: usize = 256 * 1024;
/// Bytes that a regular expression looks at: a format shows itself at the beginning.
const LOOKED_AT: usize = 64 * 1024;

/// A sign by which a format is known.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pub(crate) kind: PatternKind,
    pub(crate) confidence: f64,
}

#[derive(Clone, Debug)]
pub(crate) enum PatternKind {
    Prefix(Vec<u8>),
    Contains(Vec<u8>),
    Regex(Regex),
    /// Names that all stand at the top of the object.
    Keys(Vec<String>),
}

impl PatternKind {
    pub(crate) fn prefix(text: &str) -> Result<PatternKind, String> {
        some(text).map(PatternKind::Prefix)
    }

    pub(crate) fn contains(text: &str) -> Result<PatternKind, String> {
        some(text).map(PatternKind::Contains)
    }

    pub(crate) fn regex(text: &str) -> Result<PatternKind, String> {
        some(text)?;
        RegexBuilder::new(text)
            .size_limit(MAX_REGEX)
            .dfa_size_limit(MAX_REGEX)
            .nest_limit(64)
            .build()
            .map(PatternKind::Regex)
            .map_err(|error| {
                let reason = error.to_string();
                reason.lines().last().unwrap_or_default().to_owned()
            })
    }

    pub(crate) fn keys(keys: Vec<String>) -> Result<PatternKind, String> {
        match keys.is_empty() || keys.iter().any(String::is_empty) {
            true => Err("it names one key or several, with commas between".to_owned()),
            false => Ok(PatternKind::Keys(keys)),
        }
    }
}

fn some(text: &str) -> Result<Vec<u8>, String> {
    match text.is_empty() {
        true => Err("an empty pattern would hold for everything".to_owned()),
        false => Ok(text.as_bytes().to_vec()),
    }
}

/// What data was found to be.
#[derive(Clone, Copy, Debug)]
pub struct Detection<'f> {
    /// The format with the highest score of at least 0.5; of equal ones the earlier registered.
    pub best: Option<&'f Format>,
    /// The highest score of all, from 0.0 to 1.0.
    pub confidence: f64,
}

/// Scores every format.
pub(crate) fn detect<'f>(formats: impl Iterator<Item = &'f Format>, data: &[u8]) -> Detection<'f> {
    let seen = Seen::new(data);
    let (mut best, mut confidence) = (None, 0.0);
    for format in formats {
        let score = format.score(&seen);
        if score > confidence {
            (best, confidence) = (Some(format), score);
        }
    }
    Detection {
        best: best.filter(|_| confidence >= ENOUGH),
        confidence,
    }
}

/// Data, and what is found out about it only once, and only when it is asked.
pub(crate) struct Seen<'d> {
    data: &'d [u8],
    read: [OnceCell<Option<Vec<String>>>; Codec::ALL.len()],
}

impl<'d> Seen<'d> {
    fn new(data: &'d [u8]) -> Seen<'d> {
        Seen {
            data,
            read: Default::default(),
        }
    }

    /// The names at the top, none for what isn't an object; `None` where the codec can't read it.
    fn keys(&self, codec: Codec) -> Option<&[String]> {
        let at = Codec::ALL.iter().position(|(_, known)| *known == codec)?;
        let cell = self.read.get(at)?;
        cell.get_or_init(|| {
            if !codec.may_begin(*self.data.first()?) {
                return None;
            }
            let text = codec.read(self.data).ok()?;
            Some(match Document::read(&text).ok()? {
                Document::Object(members) => members
                    .into_iter()
                    .map(|(key, _)| key.into_owned())
                    .collect(),
                Document::Other(_) => Vec::new(),
            })
        })
        .as_deref()
    }
}

impl Format {
    fn score(&self, seen: &Seen<'_>) -> f64 {
        let mut score = 0.0;
        for pattern in self.patterns() {
            if pattern.confidence > score && pattern.holds(seen, self.codec()) {
                score = pattern.confidence;
            }
        }
        // What only looks like it couldn't be converted.
        match score > 0.0 && !self.reads(seen) {
            true => 0.0,
            false => score,
        }
    }

    fn reads(&self, seen: &Seen<'_>) -> bool {
        seen.keys(self.codec()).is_some()
            && self.schema().is_none_or(|schema| {
                let text = self.codec().read(seen.data);
                text.is_ok_and(|text| schema.check(&text).is_ok())
            })
    }
}

impl Pattern {
    fn holds(&self, seen: &Seen<'_>, codec: Codec) -> bool {
        match &self.kind {
            PatternKind::Prefix(prefix) => seen.data.starts_with(prefix),
            PatternKind::Contains(part) => memchr::memmem::find(seen.data, part).is_some(),
            PatternKind::Regex(regex) => {
                regex.is_match(seen.data.get(..LOOKED_AT).unwrap_or(seen.data))
            }
            PatternKind::Keys(keys) => seen
                .keys(codec)
                .is_some_and(|there| keys.iter().all(|key| there.contains(key))),
        }
    }
}
