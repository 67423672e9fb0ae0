//! Whole answers, built from tokens.

use bytes::Bytes;

use super::codec::{CodecError, Token};

/// No answer that we ask for is nested deeper than four.
const MAX_DEPTH: usize = 16;
/// Elements of one answer together: a registry of a million services.
const MAX_ELEMENTS: usize = 1 << 21;
/// Bytes of one answer together.
const MAX_BYTES: usize = 256 << 20;

/// Takes tokens until an answer is whole.
pub(crate) trait Build {
    /// What comes out.
    type Out;

    /// Whether nothing has been taken yet, so that something else may still come first.
    fn is_fresh(&self) -> bool;

    /// How long a text there is room for next.
    fn room(&self) -> usize;

    /// Takes a token; gives the answer with its last.
    fn take(&mut self, token: Token) -> Result<Option<Self::Out>, CodecError>;
}

/// An answer. Maps and pushes are given as the flat list of their elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    Null,
    Integer(i64),
    /// A status or a text.
    Text(Bytes),
    Error(Bytes),
    List(Vec<Frame>),
}

impl Frame {
    /// The text of a status or text, if it is one.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        match self {
            Frame::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The elements of a list; none for anything else.
    pub(crate) fn elements(&self) -> &[Frame] {
        match self {
            Frame::List(elements) => elements,
            _ => &[],
        }
    }
}

/// Builds a [`Frame`].
#[derive(Debug, Default)]
pub(crate) struct FrameBuilder {
    open: Vec<Open>,
    elements: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Open {
    missing: usize,
    elements: Vec<Frame>,
}

impl Build for FrameBuilder {
    type Out = Frame;

    fn is_fresh(&self) -> bool {
        self.open.is_empty()
    }

    fn room(&self) -> usize {
        MAX_BYTES.saturating_sub(self.bytes)
    }

    fn take(&mut self, token: Token) -> Result<Option<Frame>, CodecError> {
        self.elements += 1;
        if self.elements > MAX_ELEMENTS {
            return Err(CodecError("an answer has too many elements"));
        }
        let frame = match token {
            Token::Array(0) | Token::Map(0) | Token::Push(0) => Frame::List(Vec::new()),
            Token::Array(missing) | Token::Push(missing) => return self.open(missing),
            Token::Map(pairs) => return self.open(pairs.saturating_mul(2)),
            Token::Skipped(_) => return Err(CodecError("an answer is too long")),
            Token::Text(text) | Token::Simple(text) => {
                self.bytes = self.bytes.saturating_add(text.len());
                Frame::Text(text)
            }
            Token::Error(text) => Frame::Error(text),
            Token::Integer(number) => Frame::Integer(number),
            Token::Null => Frame::Null,
        };
        Ok(self.close(frame))
    }
}

impl FrameBuilder {
    fn open(&mut self, missing: usize) -> Result<Option<Frame>, CodecError> {
        if self.open.len() == MAX_DEPTH {
            return Err(CodecError("an answer is nested too deeply"));
        }
        // What is announced isn't believed: room is made as elements come.
        self.open.push(Open {
            missing,
            elements: Vec::with_capacity(missing.min(64)),
        });
        Ok(None)
    }

    fn close(&mut self, mut frame: Frame) -> Option<Frame> {
        loop {
            let Some(open) = self.open.last_mut() else {
                self.elements = 0;
                self.bytes = 0;
                return Some(frame);
            };
            open.elements.push(frame);
            open.missing -= 1;
            if open.missing > 0 {
                return None;
            }
            frame = Frame::List(
                self.open
                    .pop()
                    .map(|open| open.elements)
                    .unwrap_or_default(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::Decoder;
    use super::*;
    use proptest::prelude::*;

    fn frames(wire: &[u8]) -> Result<Vec<Frame>, CodecError> {
        let (mut decoder, mut builder, mut frames) =
            (Decoder::default(), FrameBuilder::default(), Vec::new());
        decoder.space().extend_from_slice(wire);
        while let Some(token) = decoder.next(builder.room())? {
            frames.extend(builder.take(token)?);
        }
        Ok(frames)
    }

    #[test]
    fn nested_answers_are_whole() {
        let wire = b"*3\r\n*0\r\n%1\r\n+a\r\n*1\r\n:1\r\n$-1\r\n:7\r\n";
        let text = Frame::Text(Bytes::from_static(b"a"));
        let expected = [
            Frame::List(vec![
                Frame::List(vec![]),
                Frame::List(vec![text, Frame::List(vec![Frame::Integer(1)])]),
                Frame::Null,
            ]),
            Frame::Integer(7),
        ];
        assert_eq!(frames(wire).unwrap(), expected);
    }

    #[test]
    fn nesting_has_a_bound() {
        assert!(frames(&b"*1\r\n".repeat(MAX_DEPTH)).unwrap().is_empty());
        assert!(frames(&b"*1\r\n".repeat(MAX_DEPTH + 1)).is_err());
    }

    proptest! {
        #[test]
        fn nothing_like_the_protocol_makes_it_panic(text in "([*%>$:][0-9]{1,3}\r\n|[a-z]{0,3}\r\n){0,20}") {
            let _ = frames(text.as_bytes());
        }
    }
}
