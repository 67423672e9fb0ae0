//! Cutting commands out of the bytes that a client sends.
//!
//! Lengths are checked against the limits as they come, before anything is set aside for them,
//! and only a flat array of strings goes on to the decoder. How far the bytes were looked at is
//! kept, so that a command that comes in small pieces isn't looked at from its beginning each time.

use bytes::{Buf, Bytes, BytesMut};
use redis_protocol::resp2::decode::decode_bytes;
use redis_protocol::resp2::types::BytesFrame;

/// Arguments of one command.
const MAX_ARGUMENTS: usize = 1_048_576;
/// Bytes of a line: an inline command, or a length.
const MAX_LINE: usize = 64 * 1024;
/// Before it has given the password a client may send so many arguments, of so many bytes each.
const MAX_STRANGER_ARGUMENTS: usize = 10;
const MAX_STRANGER_BYTES: usize = 16 * 1024;

/// What is wrong with the bytes; the client gets it as its last answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProtocolError(pub(super) String);

fn broken(what: &str) -> ProtocolError {
    ProtocolError(format!("ERR Protocol error: {what}"))
}

/// A command that hasn't wholly arrived.
#[derive(Debug, Clone, Copy)]
struct Partial {
    /// Arguments that are still to come.
    left: usize,
    /// Where the next one begins.
    at: usize,
}

#[derive(Debug)]
pub(super) struct Inbound {
    max_bytes: usize,
    partial: Option<Partial>,
}

impl Inbound {
    pub(super) fn new(max_bytes: usize) -> Inbound {
        Inbound {
            max_bytes,
            partial: None,
        }
    }

    /// Takes the next command off the buffer, if all of it is there. Never an empty one.
    pub(super) fn next(
        &mut self,
        buffer: &mut BytesMut,
        known: bool,
    ) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        loop {
            match buffer.first() {
                None => return Ok(None),
                Some(b'*') => {
                    let Some(end) = self.find_end(buffer, known)? else {
                        return Ok(None);
                    };
                    let whole = buffer.split_to(end).freeze();
                    match decode_bytes(&whole) {
                        Ok(Some((BytesFrame::Array(items), _))) if !items.is_empty() => {
                            return items
                                .into_iter()
                                .map(argument)
                                .collect::<Result<_, _>>()
                                .map(Some);
                        }
                        Ok(Some((BytesFrame::Array(_) | BytesFrame::Null, _))) => {}
                        _ => return Err(broken("invalid command")),
                    }
                }
                Some(_) => {
                    let Some(line) = take_line(buffer)? else {
                        return Ok(None);
                    };
                    let arguments = split_inline(&line)
                        .ok_or_else(|| broken("unbalanced quotes in request"))?;
                    if !arguments.is_empty() {
                        return Ok(Some(arguments));
                    }
                }
            }
        }
    }

    /// Where the command at the beginning of the buffer ends, if it has wholly arrived.
    fn find_end(&mut self, buffer: &[u8], known: bool) -> Result<Option<usize>, ProtocolError> {
        let mut partial = match self.partial {
            Some(partial) => partial,
            None => {
                let Some((line, at)) = line(buffer, 0, "too big mbulk count string")? else {
                    return Ok(None);
                };
                let count = number(line)
                    .and_then(|count| usize::try_from(count.max(0)).ok())
                    .filter(|count| *count <= MAX_ARGUMENTS);
                let left = count.ok_or_else(|| broken("invalid multibulk length"))?;
                if !known && left > MAX_STRANGER_ARGUMENTS {
                    return Err(broken("unauthenticated multibulk length"));
                }
                // The decoder knows no other negative length than this one.
                if left == 0 && !matches!(line, b"0" | b"-1") {
                    return Err(broken("invalid multibulk length"));
                }
                Partial { left, at }
            }
        };
        while partial.left > 0 {
            self.partial = Some(partial);
            match buffer.get(partial.at) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(other) => {
                    return Err(broken(&format!(
                        "expected '$', got '{}'",
                        char::from(*other).escape_default()
                    )));
                }
            }
            let Some((line, at)) = line(buffer, partial.at, "too big bulk count string")? else {
                return Ok(None);
            };
            let len = number(line)
                .and_then(|len| usize::try_from(len).ok())
                .filter(|len| *len <= self.max_bytes);
            let len = len.ok_or_else(|| broken("invalid bulk length"))?;
            if !known && len > MAX_STRANGER_BYTES {
                return Err(broken("unauthenticated bulk length"));
            }
            let end = at.saturating_add(len).saturating_add(2);
            if end > self.max_bytes {
                return Err(broken("too big command"));
            }
            if end > buffer.len() {
                return Ok(None);
            }
            partial = Partial {
                left: partial.left.saturating_sub(1),
                at: end,
            };
        }
        self.partial = None;
        Ok(Some(partial.at))
    }
}

fn argument(frame: BytesFrame) -> Result<Bytes, ProtocolError> {
    match frame {
        BytesFrame::BulkString(bytes) => Ok(bytes),
        _ => Err(broken("invalid bulk length")),
    }
}

/// The line at `at` without its type and its end, and where the next one begins.
fn line<'a>(
    buffer: &'a [u8],
    at: usize,
    too_long: &str,
) -> Result<Option<(&'a [u8], usize)>, ProtocolError> {
    let rest = buffer.get(at..).unwrap_or_default();
    let window = rest.get(..rest.len().min(MAX_LINE)).unwrap_or_default();
    match memchr::memmem::find(window, b"\r\n") {
        Some(end) => Ok(rest
            .get(1..end)
            .map(|line| (line, at.saturating_add(end).saturating_add(2)))),
        None if rest.len() >= MAX_LINE => Err(broken(too_long)),
        None => Ok(None),
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits)
        .ok()
        .filter(|digits| !digits.starts_with('+'))
        .and_then(|digits| digits.parse().ok())
}

fn take_line(buffer: &mut BytesMut) -> Result<Option<Bytes>, ProtocolError> {
    let window = buffer.get(..buffer.len().min(MAX_LINE)).unwrap_or_default();
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if buffer.len() >= MAX_LINE {
            Err(broken("too big inline request"))
        } else {
            Ok(None)
        };
    };
    let mut line = buffer.split_to(end).freeze();
    buffer.advance(1);
    if line.last() == Some(&b'\r') {
        line.truncate(line.len().saturating_sub(1));
    }
    Ok(Some(line))
}

/// Splits a line into arguments. Double quotes know escapes, single quotes only `\'`. `None`
/// where quotes aren't closed, or are followed by something else than a space.
fn split_inline(line: &[u8]) -> Option<Vec<Bytes>> {
    let mut arguments = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(arguments);
        }
        let mut argument = Vec::new();
        while let Some((&byte, after)) = rest.split_first() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | 0 => break,
                b'"' | b'\'' => {
                    rest = quoted(byte, after, &mut argument)?;
                    if rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
                        return None;
                    }
                    break;
                }
                _ => {
                    argument.push(byte);
                    rest = after;
                }
            }
        }
        if rest.first() == Some(&0) {
            rest = &[];
        }
        arguments.push(Bytes::from(argument));
    }
}

/// Takes what stands in quotes; gives what comes after them.
fn quoted<'a>(quote: u8, mut rest: &'a [u8], argument: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [] => return None,
            [byte, after @ ..] if *byte == quote => return Some(after),
            [b'\\', b'\'', after @ ..] if quote == b'\'' => {
                argument.push(b'\'');
                after
            }
            [b'\\', b'x', high, low, after @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |byte: &u8| {
                    char::from(*byte)
                        .to_digit(16)
                        .and_then(|digit| u8::try_from(digit).ok())
                };
                argument.push(digit(high)? << 4 | digit(low)?);
                after
            }
            [b'\\', byte, after @ ..] if quote == b'"' => {
                argument.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                argument.push(*byte);
                after
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn feed(pieces: &[&[u8]]) -> Result<Vec<Vec<Bytes>>, ProtocolError> {
        let mut inbound = Inbound::new(1 << 20);
        let mut buffer = BytesMut::new();
        let mut commands = Vec::new();
        for piece in pieces {
            buffer.extend_from_slice(piece);
            while let Some(command) = inbound.next(&mut buffer, true)? {
                commands.push(command);
            }
        }
        Ok(commands)
    }

    fn words(words: &[&str]) -> Vec<Bytes> {
        words
            .iter()
            .map(|word| Bytes::copy_from_slice(word.as_bytes()))
            .collect()
    }

    #[test]
    fn commands_are_cut_out_wherever_the_pieces_end() {
        let bytes = b"*2\r\n$4\r\nPING\r\n$2\r\n\r\n\r\nPING \"a b\"\r\n*0\r\n*1\r\n$4\r\nINFO\r\n";
        let expected = vec![
            words(&["PING", "\r\n"]),
            words(&["PING", "a b"]),
            words(&["INFO"]),
        ];
        assert_eq!(feed(&[bytes]).unwrap(), expected);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(feed(&single).unwrap(), expected);
    }

    #[test]
    fn what_is_too_large_or_nested_is_refused_before_it_arrives() {
        for (bytes, text) in [
            (&b"*1048577\r\n"[..], "invalid multibulk length"),
            (b"*9223372036854775807\r\n", "invalid multibulk length"),
            (b"*x\r\n", "invalid multibulk length"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$1048577\r\n", "invalid bulk length"),
            (b"*1\r\n$9223372036854775807\r\n", "invalid bulk length"),
            (b"*2\r\n$600000\r\n", ""),
            (b"*1\r\n*1\r\n*1\r\n", "expected '$', got '*'"),
            (b"PING \"a\r\n", "unbalanced quotes in request"),
        ] {
            match feed(&[bytes]) {
                Err(ProtocolError(error)) => {
                    assert_eq!(error, format!("ERR Protocol error: {text}"))
                }
                Ok(commands) => assert!(text.is_empty() && commands.is_empty(), "{text}"),
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_in_arbitrary_pieces_never_panic(pieces in prop::collection::vec(prop::collection::vec(
            prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1'), Just(b'"'), any::<u8>()], 0..12), 0..12)) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let _ = feed(&pieces);
        }

        #[test]
        fn what_was_sent_is_what_arrives(command in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 1..6), cut in 1usize..40) {
            let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
            for argument in &command {
                bytes.extend(format!("${}\r\n", argument.len()).bytes());
                bytes.extend(argument);
                bytes.extend(b"\r\n");
            }
            let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
            let expected: Vec<Bytes> = command.into_iter().map(Bytes::from).collect();
            prop_assert_eq!(feed(&pieces).unwrap(), vec![expected]);
        }
    }
}
