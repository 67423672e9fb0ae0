//! The store's wire protocol (RESP2 and RESP3), read token by token, without any I/O.
//!
//! [`Decoder`] is fed bytes and gives [`Token`]s; whoever reads them knows what shape to expect
//! and says, before each, how many bytes of text there is room for. A text longer than that is
//! passed over as it arrives and never held in memory. Texts that are kept share the buffer that
//! they were read into.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

/// A header or a simple text; servers' error messages stay far below.
const MAX_LINE: usize = 64 * 1024;
/// The most elements one aggregate may announce; no answer that we ask for comes near.
const MAX_ELEMENTS: usize = 1 << 24;
/// The longest text that is passed over; servers allow 512 MiB unless told otherwise.
const MAX_TEXT: u64 = 1 << 40;
/// What is made free for one read from the socket.
const READ_AHEAD: usize = 64 * 1024;

/// What is not RESP, or isn't the answer that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CodecError(pub(crate) &'static str);

/// One step of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// An array or set of so many elements follows.
    Array(usize),
    /// A map of so many pairs follows.
    Map(usize),
    /// Something that wasn't asked for follows, of so many elements.
    Push(usize),
    /// A text of any bytes.
    Text(Bytes),
    /// A text of so many bytes that there was no room for.
    Skipped(u64),
    /// A short status, or a number that isn't whole, as it was written.
    Simple(Bytes),
    /// An error in the store's words.
    Error(Bytes),
    /// A whole number, or a truth as 0 or 1.
    Integer(i64),
    /// Nothing.
    Null,
}

/// Bytes in, tokens out.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    buffer: BytesMut,
    /// How much of the buffer is known to hold no end of line.
    searched: usize,
    /// How many bytes the buffer must hold before the next token can be given.
    wanted: usize,
    skipping: Option<Skipping>,
}

#[derive(Debug)]
struct Skipping {
    length: u64,
    left: u64,
}

impl Decoder {
    /// The buffer to read into, with room made. Whole texts are given room at once, so that a
    /// long one isn't moved again and again while it arrives.
    pub(crate) fn space(&mut self) -> &mut BytesMut {
        let missing = self.wanted.saturating_sub(self.buffer.len());
        if self.buffer.capacity() - self.buffer.len() < missing.max(READ_AHEAD / 8) {
            self.buffer.reserve(missing.max(READ_AHEAD));
        }
        &mut self.buffer
    }

    /// The next token, or `None` when more bytes are needed. A text of more than `room` bytes
    /// comes as [`Token::Skipped`].
    pub(crate) fn next(&mut self, room: usize) -> Result<Option<Token>, CodecError> {
        if self.skipping.is_some() {
            return self.skip();
        }
        let Some(end) = self.line_end()? else {
            return Ok(None);
        };
        let line = self.buffer.get(..end).unwrap_or_default();
        let Some((kind, rest)) = line.split_first() else {
            return Err(CodecError(
                "an empty line stands where an answer should begin",
            ));
        };
        let token = match kind {
            b'$' | b'=' | b'!' => return self.text(*kind, end, room),
            b'*' | b'~' => match length(rest)? {
                Some(length) => Token::Array(elements(length)?),
                None => Token::Null,
            },
            b'%' => Token::Map(elements(length(rest)?.unwrap_or(0))?),
            b'>' => Token::Push(elements(length(rest)?.unwrap_or(0))?),
            b':' => Token::Integer(integer(rest)?),
            b'#' => match rest {
                b"t" => Token::Integer(1),
                b"f" => Token::Integer(0),
                _ => return Err(CodecError("a truth value is neither t nor f")),
            },
            b'_' => Token::Null,
            b'+' | b',' | b'(' => return Ok(Some(Token::Simple(self.take_line(end)))),
            b'-' => return Ok(Some(Token::Error(self.take_line(end)))),
            _ => return Err(CodecError("a line begins with a byte that has no meaning")),
        };
        self.pass(end + 2);
        Ok(Some(token))
    }

    /// Where the first line ends, before its `\r\n`.
    fn line_end(&mut self) -> Result<Option<usize>, CodecError> {
        let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
        match memchr(b'\n', unsearched) {
            Some(offset) => {
                let newline = self.searched + offset;
                // The same line may be looked for again, when its text is not all here.
                self.searched = newline;
                match newline.checked_sub(1) {
                    Some(end) if self.buffer.get(end) == Some(&b'\r') && end <= MAX_LINE => {
                        Ok(Some(end))
                    }
                    _ => Err(CodecError("a line doesn't end as it should")),
                }
            }
            None if self.buffer.len() > MAX_LINE => {
                Err(CodecError("a line is longer than any should be"))
            }
            None => {
                self.searched = self.buffer.len();
                Ok(None)
            }
        }
    }

    fn take_line(&mut self, end: usize) -> Bytes {
        let line = self.buffer.split_to(end).freeze().slice(1..);
        self.pass(2);
        line
    }

    fn text(&mut self, kind: u8, end: usize, room: usize) -> Result<Option<Token>, CodecError> {
        let digits = self.buffer.get(1..end).unwrap_or_default();
        let Some(length) = length(digits)? else {
            self.pass(end + 2);
            return Ok(Some(Token::Null));
        };
        // An error must be told whatever there is room for.
        let room = if kind == b'!' { MAX_LINE } else { room };
        let Some(short) = usize::try_from(length)
            .ok()
            .filter(|length| *length <= room)
        else {
            if length > MAX_TEXT {
                return Err(CodecError("a text is longer than any should be"));
            }
            self.pass(end + 2);
            self.skipping = Some(Skipping {
                length,
                left: length + 2,
            });
            return self.skip();
        };
        let whole = end + 2 + short + 2;
        if self.buffer.len() < whole {
            self.wanted = whole;
            return Ok(None);
        }
        if self.buffer.get(whole - 2..whole) != Some(b"\r\n") {
            return Err(CodecError("a text doesn't end where it should"));
        }
        self.buffer.advance(end + 2);
        let text = self.buffer.split_to(short).freeze();
        self.pass(2);
        Ok(Some(match kind {
            b'!' => Token::Error(text),
            // Three letters and a colon say what kind of text it is.
            b'=' => Token::Text(text.slice(text.len().min(4)..)),
            _ => Token::Text(text),
        }))
    }

    fn skip(&mut self) -> Result<Option<Token>, CodecError> {
        let Some(skipping) = &mut self.skipping else {
            return Ok(None);
        };
        let here = u64::try_from(self.buffer.len())
            .unwrap_or(u64::MAX)
            .min(skipping.left);
        skipping.left -= here;
        let (left, length) = (skipping.left, skipping.length);
        self.pass(usize::try_from(here).unwrap_or_default());
        if left > 0 {
            return Ok(None);
        }
        self.skipping = None;
        Ok(Some(Token::Skipped(length)))
    }

    fn pass(&mut self, bytes: usize) {
        self.buffer.advance(bytes);
        self.searched = 0;
        self.wanted = 0;
    }
}

fn elements(length: u64) -> Result<usize, CodecError> {
    match usize::try_from(length) {
        Ok(length) if length <= MAX_ELEMENTS => Ok(length),
        _ => Err(CodecError(
            "more elements are announced than any answer should have",
        )),
    }
}

/// A length; -1 is how RESP2 writes that there is nothing.
fn length(digits: &[u8]) -> Result<Option<u64>, CodecError> {
    match digits {
        b"-1" => Ok(None),
        digits => number(digits)
            .map(Some)
            .ok_or(CodecError("a length isn't a number")),
    }
}

fn integer(digits: &[u8]) -> Result<i64, CodecError> {
    let text = std::str::from_utf8(digits).unwrap_or_default();
    text.parse()
        .map_err(|_| CodecError("an integer isn't a number"))
}

/// A whole number without a sign.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, byte| match byte {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(pieces: &[&[u8]], room: usize) -> Result<Vec<Token>, CodecError> {
        let mut decoder = Decoder::default();
        let mut tokens = Vec::new();
        for piece in pieces {
            decoder.space().extend_from_slice(piece);
            while let Some(token) = decoder.next(room)? {
                tokens.push(token);
            }
        }
        Ok(tokens)
    }

    fn text(bytes: &'static [u8]) -> Token {
        Token::Text(Bytes::from_static(bytes))
    }

    #[test]
    fn each_kind_of_answer_is_read() {
        let wire = b"*2\r\n$3\r\na\r\n\r\n:-12\r\n+OK\r\n-ERR no\r\n$-1\r\n*-1\r\n_\r\n%1\r\n#t\r\n#f\r\n>2\r\n~0\r\n,1.5\r\n(99\r\n=7\r\ntxt:abc\r\n!3\r\nERR\r\n$0\r\n\r\n";
        let simple = |bytes| Token::Simple(Bytes::from_static(bytes));
        let expected = [
            Token::Array(2),
            text(b"a\r\n"),
            Token::Integer(-12),
            simple(b"OK"),
            Token::Error(Bytes::from_static(b"ERR no")),
            Token::Null,
            Token::Null,
            Token::Null,
            Token::Map(1),
            Token::Integer(1),
            Token::Integer(0),
            Token::Push(2),
            Token::Array(0),
            simple(b"1.5"),
            simple(b"99"),
            text(b"abc"),
            Token::Error(Bytes::from_static(b"ERR")),
            text(b""),
        ];
        // Room for 7 bytes, which is the longest text in it.
        assert_eq!(tokens(&[wire], 7).unwrap(), expected);
    }

    #[test]
    fn a_text_there_is_no_room_for_is_passed_over_as_it_comes() {
        let mut decoder = Decoder::default();
        decoder.space().extend_from_slice(b"$1000000\r\n");
        for _ in 0..1000 {
            assert_eq!(decoder.next(10).unwrap(), None);
            decoder.space().extend_from_slice(&[b'x'; 1000]);
            assert!(decoder.buffer.len() <= 1000);
        }
        decoder.space().extend_from_slice(b"\r\n:1\r\n");
        assert_eq!(decoder.next(10).unwrap(), Some(Token::Skipped(1_000_000)));
        assert_eq!(decoder.next(10).unwrap(), Some(Token::Integer(1)));
    }

    #[test]
    fn a_long_text_is_given_its_room_at_once() {
        let mut decoder = Decoder::default();
        decoder.space().extend_from_slice(b"$1000000\r\n");
        assert_eq!(decoder.next(usize::MAX).unwrap(), None);
        let space = decoder.space();
        assert!(space.capacity() >= 1_000_012, "{}", space.capacity());
    }

    #[test]
    fn what_is_not_the_protocol_is_refused() {
        for wire in [
            &b"\r\n"[..],
            b"\n",
            b"hello\r\n",
            b"$x\r\n",
            b"$-2\r\n",
            b"$3\r\nabcde",
            b"*99999999999\r\n",
            b"*999999999999999999999999\r\n",
            b":\r\n",
            b"#x\r\n",
            b"+OK\n",
            b"|1\r\n",
            b"$18446744073709551615\r\n",
        ] {
            assert!(
                tokens(&[wire], 100).is_err(),
                "{:?}",
                String::from_utf8_lossy(wire)
            );
        }
        assert!(tokens(&[&vec![b'+'; MAX_LINE + 2]], 100).is_err());
    }

    fn wire() -> impl Strategy<Value = Vec<u8>> {
        let element = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| {
                let mut wire = format!("${}\r\n", bytes.len()).into_bytes();
                wire.extend(bytes);
                wire.extend(b"\r\n");
                wire
            }),
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            (0..50_usize).prop_map(|length| format!("*{length}\r\n").into_bytes()),
            (0..50_usize).prop_map(|length| format!("%{length}\r\n").into_bytes()),
            "[ -~]{0,20}".prop_map(|text| format!("-{text}\r\n").into_bytes()),
            Just(b"$-1\r\n".to_vec()),
        ];
        proptest::collection::vec(element, 0..20).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_tokens(wire in wire(), cuts in proptest::collection::vec(0..800_usize, 0..12), room in 0..60_usize) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(wire.len())).collect();
            cuts.extend([0, wire.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &wire[pair[0]..pair[1]]).collect();
            prop_assert_eq!(tokens(&pieces, room), tokens(&[&wire], room));
        }

        #[test]
        fn no_bytes_make_it_panic(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..6), room in 0..60_usize) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let _ = tokens(&pieces, room);
        }

        #[test]
        fn nothing_like_the_protocol_makes_it_panic(text in "[-$*%+:#_0-9\r\n]{0,60}", room in 0..60_usize) {
            let _ = tokens(&[text.as_bytes()], room);
        }
    }
}
