//! Commands, written as the store's wire protocol.

use std::io::Write as _;

use bytes::{BufMut, Bytes, BytesMut};
use crossway_core::entry::EntryId;

/// A value from this length on is chained as it is; a shorter one is cheaper to copy than to
/// hand to the system as a piece of its own.
const CHAINED: usize = 4 * 1024;

/// Commands on their way out, as pieces that are written one after the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outgoing {
    sealed: Vec<Bytes>,
    tail: BytesMut,
}

impl Outgoing {
    /// Begins a command of so many words, its name included.
    pub(crate) fn command(&mut self, words: usize) -> &mut Outgoing {
        self.header(b'*', words);
        self
    }

    /// A whole command of short words.
    pub(crate) fn line(&mut self, words: &[&[u8]]) -> &mut Outgoing {
        self.command(words.len());
        for word in words {
            self.word(word);
        }
        self
    }

    /// A word, copied.
    pub(crate) fn word(&mut self, word: &[u8]) -> &mut Outgoing {
        self.header(b'$', word.len());
        self.tail.extend_from_slice(word);
        self.tail.extend_from_slice(b"\r\n");
        self
    }

    /// A word that is chained when it is long.
    pub(crate) fn value(&mut self, value: &Bytes) -> &mut Outgoing {
        if value.len() < CHAINED {
            return self.word(value);
        }
        self.header(b'$', value.len());
        self.sealed.push(self.tail.split().freeze());
        self.sealed.push(value.clone());
        self.tail.extend_from_slice(b"\r\n");
        self
    }

    /// A whole number.
    pub(crate) fn number(&mut self, number: u64) -> &mut Outgoing {
        let mut digits = [0; 20];
        self.word(decimal(number, &mut digits))
    }

    /// An entry's id.
    pub(crate) fn id(&mut self, id: EntryId) -> &mut Outgoing {
        let mut text = [0; 41];
        let mut rest = text.as_mut_slice();
        // 41 bytes hold two numbers of 20 digits and the hyphen.
        let written = match write!(rest, "{id}") {
            Ok(()) => 41 - rest.len(),
            Err(_) => 0,
        };
        self.word(text.get(..written).unwrap_or_default())
    }

    /// Everything of another, after what is here.
    pub(crate) fn append(&mut self, other: Outgoing) {
        self.sealed.push(self.tail.split().freeze());
        self.sealed.extend(other.sealed);
        self.tail = other.tail;
    }

    /// The pieces to be written.
    pub(crate) fn pieces(mut self) -> Vec<Bytes> {
        if !self.tail.is_empty() {
            self.sealed.push(self.tail.freeze());
        }
        self.sealed
    }

    fn header(&mut self, kind: u8, length: usize) {
        let mut digits = [0; 20];
        self.tail.put_u8(kind);
        self.tail.extend_from_slice(decimal(
            u64::try_from(length).unwrap_or(u64::MAX),
            &mut digits,
        ));
        self.tail.extend_from_slice(b"\r\n");
    }
}

/// Writes a number without going through `fmt`, which shows on the hot path.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut used = 0;
    for place in digits.iter_mut().rev() {
        *place = b'0' + u8::try_from(number % 10).unwrap_or_default();
        used += 1;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    digits.get(20 - used..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::codec::{Decoder, Token};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_command_is_written_as_the_store_reads_it() {
        let mut out = Outgoing::default();
        out.command(4)
            .word(b"XACK")
            .word(b"")
            .number(0)
            .id(EntryId::new(12, 3));
        assert_eq!(
            out.pieces().concat(),
            b"*4\r\n$4\r\nXACK\r\n$0\r\n\r\n$1\r\n0\r\n$4\r\n12-3\r\n"
        );
        let mut out = Outgoing::default();
        out.command(2).number(u64::MAX).id(EntryId::MAX);
        let text = "*2\r\n$20\r\n18446744073709551615\r\n$41\r\n18446744073709551615-18446744073709551615\r\n";
        assert_eq!(out.pieces().concat(), text.as_bytes());
    }

    #[test]
    fn a_long_value_is_not_copied() {
        let value = Bytes::from(vec![b'x'; CHAINED]);
        let mut out = Outgoing::default();
        out.command(2).word(b"a").value(&value);
        let pieces = out.pieces();
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[1].as_ptr(), value.as_ptr());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(lengths in proptest::collection::vec(prop_oneof![0..20_usize, 4090..4100_usize], 1..8), byte: u8) {
            let values: Vec<Bytes> = lengths.into_iter().map(|length| Bytes::from(vec![byte; length])).collect();
            let mut out = Outgoing::default();
            out.command(values.len());
            for value in &values {
                out.value(value);
            }
            let mut decoder = Decoder::default();
            decoder.space().extend_from_slice(&out.pieces().concat());
            prop_assert_eq!(decoder.next(0).unwrap(), Some(Token::Array(values.len())));
            for value in values {
                prop_assert_eq!(decoder.next(10_000).unwrap(), Some(Token::Text(value)));
            }
        }
    }
}
