//! The answer to a read: entries of several streams, taken in without ever holding more of one
//! than the reader's limits allow.

use bytes::Bytes;
use crossway_core::entry::{Entry, EntryId, Fields};

use super::codec::{CodecError, Token, number};
use super::frame::Build;
use crate::streams::ReadEntry;

/// The longest name of a stream; servers allow more, nobody uses it.
const MAX_NAME: usize = 64 * 1024;
/// `18446744073709551615-18446744073709551615`.
const MAX_ID: usize = 41;

/// What a read was answered with.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Streams and their entries; empty when the wait was over.
    Streams(Vec<(Bytes, Vec<ReadEntry>)>),
    /// An error in the store's words.
    Refused(Bytes),
}

/// What one entry may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) bytes: usize,
    pub(crate) fields: usize,
}

/// Builds an [`Answer`].
#[derive(Debug)]
pub(crate) struct AnswerBuilder {
    limits: Limits,
    expect: Expect,
    streams: Vec<(Bytes, Vec<ReadEntry>)>,
    streams_left: usize,
    entries_left: usize,
    /// RESP2 wraps each stream and its entries in an array; RESP3 gives a map.
    wrapped: bool,
    entry: Partial,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Anything,
    Stream,
    Name,
    Count,
    Entry,
    Id,
    Fields,
    FieldName,
    FieldValue,
}

#[derive(Debug, Default)]
struct Partial {
    id: EntryId,
    /// Names and values still to come.
    left: usize,
    fields: u64,
    bytes: u64,
    head: Fields,
    head_bytes: usize,
    over: bool,
    /// The name that waits for its value; none where there was no room for it.
    name: Option<Bytes>,
}

const SHAPE: CodecError = CodecError("the answer to a read doesn't have the shape of one");

impl AnswerBuilder {
    pub(crate) fn new(limits: Limits) -> AnswerBuilder {
        AnswerBuilder {
            limits,
            expect: Expect::Anything,
            streams: Vec::new(),
            streams_left: 0,
            entries_left: 0,
            wrapped: false,
            entry: Partial::default(),
        }
    }

    fn begin(&mut self, streams: usize, wrapped: bool) -> Option<Answer> {
        self.streams_left = streams;
        self.wrapped = wrapped;
        self.next_stream()
    }

    fn next_stream(&mut self) -> Option<Answer> {
        if self.streams_left == 0 {
            return Some(Answer::Streams(std::mem::take(&mut self.streams)));
        }
        self.streams_left -= 1;
        self.expect = if self.wrapped {
            Expect::Stream
        } else {
            Expect::Name
        };
        None
    }

    fn next_entry(&mut self) -> Option<Answer> {
        if self.entries_left == 0 {
            return self.next_stream();
        }
        self.entries_left -= 1;
        self.expect = Expect::Entry;
        None
    }

    fn keep(&mut self, entry: ReadEntry) -> Option<Answer> {
        if let Some((_, entries)) = self.streams.last_mut() {
            entries.push(entry);
        }
        self.next_entry()
    }

    fn next_field(&mut self) -> Option<Answer> {
        if self.entry.left > 0 {
            self.entry.left -= 1;
            self.expect = if self.entry.left % 2 == 1 {
                Expect::FieldName
            } else {
                Expect::FieldValue
            };
            return None;
        }
        let Partial {
            id,
            fields,
            bytes,
            head,
            over,
            ..
        } = std::mem::take(&mut self.entry);
        self.keep(if over {
            ReadEntry::Oversize {
                id,
                bytes,
                fields,
                head,
            }
        } else {
            ReadEntry::Whole(Entry { id, fields: head })
        })
    }

    fn name(&mut self, token: Token) -> Option<Answer> {
        let entry = &mut self.entry;
        entry.fields += 1;
        match token {
            Token::Text(name) => {
                entry.bytes = entry.bytes.saturating_add(size(name.len()));
                entry.name = (entry.head.len() < self.limits.fields).then_some(name);
            }
            Token::Skipped(length) => entry.bytes = entry.bytes.saturating_add(length),
            _ => {}
        }
        entry.over |= entry.name.is_none();
        self.next_field()
    }

    fn value(&mut self, token: Token) -> Option<Answer> {
        let entry = &mut self.entry;
        let name = entry.name.take();
        match token {
            Token::Text(value) => {
                entry.bytes = entry.bytes.saturating_add(size(value.len()));
                if let Some(name) = name {
                    entry.head_bytes += name.len() + value.len();
                    entry.head.push(name, value);
                }
            }
            Token::Skipped(length) => {
                entry.bytes = entry.bytes.saturating_add(length);
                entry.over = true;
            }
            _ => {}
        }
        self.next_field()
    }
}

fn size(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

impl Build for AnswerBuilder {
    type Out = Answer;

    fn is_fresh(&self) -> bool {
        self.expect == Expect::Anything
    }

    fn room(&self) -> usize {
        let left = self.limits.bytes.saturating_sub(self.entry.head_bytes);
        match (self.expect, &self.entry.name) {
            (Expect::FieldName, _) if self.entry.head.len() < self.limits.fields => left,
            (Expect::FieldValue, Some(name)) => left.saturating_sub(name.len()),
            (Expect::FieldName | Expect::FieldValue, _) => 0,
            (Expect::Id, _) => MAX_ID,
            _ => MAX_NAME,
        }
    }

    fn take(&mut self, token: Token) -> Result<Option<Answer>, CodecError> {
        Ok(match (self.expect, token) {
            (Expect::Anything, Token::Null) => Some(Answer::Streams(Vec::new())),
            (Expect::Anything, Token::Error(text)) => Some(Answer::Refused(text)),
            (Expect::Anything, Token::Array(streams)) => self.begin(streams, true),
            (Expect::Anything, Token::Map(streams)) => self.begin(streams, false),
            (Expect::Stream, Token::Array(2)) => {
                self.expect = Expect::Name;
                None
            }
            (Expect::Name, Token::Text(name)) => {
                self.streams.push((name, Vec::new()));
                self.expect = Expect::Count;
                None
            }
            (Expect::Count, Token::Array(entries)) => {
                self.entries_left = entries;
                self.next_entry()
            }
            (Expect::Count, Token::Null) => self.next_stream(),
            (Expect::Entry, Token::Array(2)) => {
                self.expect = Expect::Id;
                None
            }
            (Expect::Id, Token::Text(text)) => {
                self.entry.id = entry_id(&text).ok_or(CodecError("an entry's id can't be read"))?;
                self.expect = Expect::Fields;
                None
            }
            (Expect::Fields, Token::Null) => {
                let id = std::mem::take(&mut self.entry).id;
                self.keep(ReadEntry::Gone(id))
            }
            (Expect::Fields, Token::Array(texts)) if texts % 2 == 0 => {
                self.entry.left = texts;
                self.entry.head =
                    Fields::with_capacity((texts / 2).min(self.limits.fields).min(64));
                self.next_field()
            }
            (Expect::FieldName, token @ (Token::Text(_) | Token::Skipped(_))) => self.name(token),
            (Expect::FieldValue, token @ (Token::Text(_) | Token::Skipped(_))) => self.value(token),
            _ => return Err(SHAPE),
        })
    }
}

/// An entry's id as a store writes it.
pub(crate) fn entry_id(text: &[u8]) -> Option<EntryId> {
    let hyphen = memchr::memchr(b'-', text)?;
    Some(EntryId::new(
        number(text.get(..hyphen)?)?,
        number(text.get(hyphen + 1..)?)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::codec::Decoder;
    use super::*;
    use proptest::prelude::*;

    const ROOMY: Limits = Limits {
        bytes: 1000,
        fields: 10,
    };

    fn answer(wire: &[u8], limits: Limits) -> Result<Option<Answer>, CodecError> {
        let (mut decoder, mut builder) = (Decoder::default(), AnswerBuilder::new(limits));
        for byte in wire {
            decoder.space().extend_from_slice(&[*byte]);
            while let Some(token) = decoder.next(builder.room())? {
                if let Some(answer) = builder.take(token)? {
                    assert_eq!(decoder.next(0), Ok(None));
                    return Ok(Some(answer));
                }
            }
        }
        Ok(None)
    }

    fn shown(wire: &[u8], limits: Limits) -> String {
        match answer(wire, limits).unwrap().unwrap() {
            Answer::Streams(streams) => format!("{streams:?}"),
            Answer::Refused(text) => format!("refused {text:?}"),
        }
    }

    const ENTRIES: &str = "*3\r\n*2\r\n$3\r\n1-2\r\n*4\r\n$1\r\na\r\n$2\r\nxy\r\n$1\r\na\r\n$0\r\n\r\n*2\r\n$3\r\n1-3\r\n*-1\r\n*2\r\n$3\r\n2-0\r\n*0\r\n";

    #[test]
    fn both_spellings_of_an_answer_are_read_alike() {
        let two = format!("*1\r\n*2\r\n$1\r\ns\r\n{ENTRIES}");
        let three = format!("%1\r\n$1\r\ns\r\n{}", ENTRIES.replace("*-1", "_"));
        let fields: Fields = [("a", "xy"), ("a", "")].into_iter().collect();
        let expected = vec![(
            Bytes::from_static(b"s"),
            vec![
                ReadEntry::Whole(Entry {
                    id: EntryId::new(1, 2),
                    fields,
                }),
                ReadEntry::Gone(EntryId::new(1, 3)),
                ReadEntry::Whole(Entry {
                    id: EntryId::new(2, 0),
                    fields: Fields::default(),
                }),
            ],
        )];
        assert_eq!(shown(two.as_bytes(), ROOMY), format!("{expected:?}"));
        assert_eq!(shown(three.as_bytes(), ROOMY), format!("{expected:?}"));
        assert_eq!(shown(b"*-1\r\n", ROOMY), "[]");
        assert_eq!(shown(b"-NOGROUP x\r\n", ROOMY), "refused b\"NOGROUP x\"");
    }

    #[test]
    fn an_entry_over_the_limits_is_told_with_what_fitted() {
        let wire = b"%1\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*6\r\n$1\r\na\r\n$2\r\nxy\r\n$1\r\nb\r\n$9\r\n123456789\r\n$1\r\nc\r\n$1\r\nz\r\n";
        let head: Fields = [("a", "xy"), ("c", "z")].into_iter().collect();
        let over = |bytes, fields, head| {
            format!(
                "{:?}",
                [(
                    Bytes::from_static(b"s"),
                    [ReadEntry::Oversize {
                        id: EntryId::new(1, 0),
                        bytes,
                        fields,
                        head
                    }]
                )]
            )
        };
        assert_eq!(
            shown(
                wire,
                Limits {
                    bytes: 8,
                    fields: 10
                }
            ),
            over(15, 3, head)
        );
        let first: Fields = [("a", "xy")].into_iter().collect();
        assert_eq!(
            shown(
                wire,
                Limits {
                    bytes: 1000,
                    fields: 1
                }
            ),
            over(15, 3, first)
        );
        assert!(
            shown(
                wire,
                Limits {
                    bytes: 15,
                    fields: 3
                }
            )
            .contains("Whole")
        );
        assert!(
            shown(
                wire,
                Limits {
                    bytes: 14,
                    fields: 3
                }
            )
            .contains("Oversize")
        );
    }

    #[test]
    fn another_shape_is_refused() {
        for wire in [
            "*1\r\n*3\r\n",
            "*1\r\n:1\r\n",
            "%1\r\n$1\r\ns\r\n*1\r\n*2\r\n$1\r\n1\r\n",
            ":1\r\n",
            "%1\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*3\r\n",
        ] {
            assert!(answer(wire.as_bytes(), ROOMY).is_err(), "{wire}");
        }
    }

    proptest! {
        #[test]
        fn what_is_kept_stays_within_the_limits(
            fields in proptest::collection::vec((0..30_usize, 0..30_usize), 0..12),
            bytes in 0..200_usize,
            most in 0..12_usize,
        ) {
            let mut wire = format!("%1\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*{}\r\n", fields.len() * 2);
            for length in fields.iter().flat_map(|(name, value)| [*name, *value]) {
                wire.push_str(&format!("${length}\r\n{}\r\n", "x".repeat(length)));
            }
            let total: usize = fields.iter().map(|(name, value)| name + value).sum();
            let Some(Answer::Streams(streams)) = answer(wire.as_bytes(), Limits { bytes, fields: most }).unwrap() else {
                panic!("no answer");
            };
            match &streams[0].1[0] {
                ReadEntry::Whole(entry) => {
                    prop_assert!(total <= bytes && fields.len() <= most);
                    prop_assert_eq!((entry.fields.len(), entry.fields.size()), (fields.len(), total));
                }
                ReadEntry::Oversize { bytes: said, fields: count, head, .. } => {
                    prop_assert!(total > bytes || fields.len() > most);
                    prop_assert_eq!((*said, *count), (total as u64, fields.len() as u64));
                    prop_assert!(head.size() <= bytes && head.len() <= most);
                }
                ReadEntry::Gone(_) => prop_assert!(false),
            }
        }
    }
}
