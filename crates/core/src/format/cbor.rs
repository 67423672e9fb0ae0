//! CBOR (RFC 8949), as far as JSON has a form for it: no byte strings, no tags but the one that
//! says "this is CBOR", keys are text.

use std::borrow::Cow;

use super::binary::{Number, Reader, float, integer, number};
use super::fault::Fault;
use super::node::Node;

/// The tag 55799, which marks data as CBOR and means nothing else.
const SELF_DESCRIBED: u64 = 55_799;

/// Reads one value, which must be all there is.
pub(crate) fn decode(data: &[u8]) -> Result<Node<'_>, Fault> {
    let mut reader = Reader::new(data);
    let node = value(&mut reader, 0)?;
    reader.end()?;
    Ok(node)
}

/// Whether data that begins so may be a map.
pub(crate) fn begins_map(first: u8) -> bool {
    matches!(first, 0xa0..=0xbb | 0xbf | 0xd9)
}

/// What follows the first byte of a value: a number, or `None` where the length isn't given.
fn argument(reader: &mut Reader<'_>, first: u8) -> Result<Option<u64>, Fault> {
    Ok(Some(match first & 0x1f {
        small @ 0..=23 => small.into(),
        24 => reader.byte()?.into(),
        25 => u16::from_be_bytes(reader.array()?).into(),
        26 => u32::from_be_bytes(reader.array()?).into(),
        27 => u64::from_be_bytes(reader.array()?),
        31 => return Ok(None),
        _ => return reader.fault("it isn't CBOR: a length has no such form"),
    }))
}

fn value<'d>(reader: &mut Reader<'d>, depth: usize) -> Result<Node<'d>, Fault> {
    let first = reader.byte()?;
    if first >> 5 == 7 {
        return simple(reader, first);
    }
    let argument = argument(reader, first)?;
    match (first >> 5, argument) {
        (0, Some(value)) => Ok(integer(value)),
        (1, Some(value)) => Ok(integer(-1 - i128::from(value))),
        (3, _) => text(reader, argument).map(Node::String),
        (4, _) => {
            reader.enter(argument.unwrap_or(0), depth)?;
            let mut items = Vec::new();
            let mut left = argument;
            while more(reader, &mut left)? {
                items.push(value(reader, depth + 1)?);
            }
            Ok(Node::Array(items))
        }
        (5, _) => {
            reader.enter(argument.unwrap_or(0), depth)?;
            let mut members = Vec::new();
            let mut left = argument;
            while more(reader, &mut left)? {
                let Some(0x60..=0x7f) = reader.peek() else {
                    return reader.fault("a key of a map isn't text");
                };
                let Node::String(key) = value(reader, depth + 1)? else {
                    return reader.fault("a key of a map isn't text");
                };
                members.push((key, value(reader, depth + 1)?));
            }
            reader.object(members)
        }
        // A tag may not follow another: that would nest without end.
        (6, Some(SELF_DESCRIBED)) if depth == 0 => value(reader, 1),
        (2 | 6, _) => reader.fault("byte strings and tags have no form in JSON"),
        _ => reader.fault("it isn't CBOR: a number has no length"),
    }
}

/// Whether another part follows: by the count, or by the break that ends what has none.
fn more(reader: &mut Reader<'_>, left: &mut Option<u64>) -> Result<bool, Fault> {
    match left {
        Some(0) => Ok(false),
        Some(count) => {
            *count -= 1;
            Ok(true)
        }
        None if reader.peek() == Some(0xff) => {
            reader.byte()?;
            Ok(false)
        }
        None => Ok(true),
    }
}

fn text<'d>(reader: &mut Reader<'d>, length: Option<u64>) -> Result<Cow<'d, str>, Fault> {
    if let Some(length) = length {
        return reader.text(length).map(Cow::Borrowed);
    }
    let mut whole = String::new();
    while more(reader, &mut None)? {
        let first = reader.byte()?;
        match (first >> 5, argument(reader, first)?) {
            (3, Some(length)) => whole.push_str(reader.text(length)?),
            _ => return reader.fault("it isn't CBOR: a part of a text isn't text"),
        }
    }
    Ok(Cow::Owned(whole))
}

fn simple<'d>(reader: &mut Reader<'d>, first: u8) -> Result<Node<'d>, Fault> {
    match first & 0x1f {
        20 => Ok(Node::Bool(false)),
        21 => Ok(Node::Bool(true)),
        22 => Ok(Node::Null),
        25 => float(half(u16::from_be_bytes(reader.array()?))),
        26 => float(f64::from(f32::from_be_bytes(reader.array()?))),
        27 => float(f64::from_be_bytes(reader.array()?)),
        _ => reader.fault("undefined and simple values have no form in JSON"),
    }
}

/// A float of 16 bits: a sign, five bits of exponent, ten of mantissa.
fn half(bits: u16) -> f64 {
    let mantissa = f64::from(bits & 0x3ff);
    let size = match bits >> 10 & 0x1f {
        0 => mantissa * 2f64.powi(-24),
        31 if bits & 0x3ff == 0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (mantissa + 1024.0) * 2f64.powi(i32::from(exponent) - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// Writes a value with definite lengths and the shortest integers.
pub(crate) fn encode(node: &Node<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    match node {
        Node::Null => out.push(0xf6),
        Node::Bool(false) => out.push(0xf4),
        Node::Bool(true) => out.push(0xf5),
        Node::Number(text) => match number(text)? {
            Number::Integer(value) => match u64::try_from(value) {
                Ok(value) => head(0, value, out),
                Err(_) => {
                    let below = u64::try_from(-1 - value)
                        .map_err(|_| Fault::new("64 bits can't hold a number"))?;
                    head(1, below, out);
                }
            },
            Number::Float(value) => {
                out.push(0xfb);
                out.extend_from_slice(&value.to_be_bytes());
            }
        },
        Node::String(text) => write_text(text, out),
        Node::Array(items) => {
            head(4, items.len() as u64, out);
            for item in items {
                encode(item, out)?;
            }
        }
        Node::Object(members) => {
            head(5, members.len() as u64, out);
            for (key, value) in members {
                write_text(key, out);
                encode(value, out)?;
            }
        }
    }
    Ok(())
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    head(3, text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

fn head(major: u8, argument: u64, out: &mut Vec<u8>) {
    let major = major << 5;
    if let Ok(short) = u8::try_from(argument) {
        match short {
            0..24 => out.push(major | short),
            _ => out.extend_from_slice(&[major | 24, short]),
        }
    } else if let Ok(argument) = u16::try_from(argument) {
        out.push(major | 25);
        out.extend_from_slice(&argument.to_be_bytes());
    } else if let Ok(argument) = u32::try_from(argument) {
        out.push(major | 26);
        out.extend_from_slice(&argument.to_be_bytes());
    } else {
        out.push(major | 27);
        out.extend_from_slice(&argument.to_be_bytes());
    }
}
