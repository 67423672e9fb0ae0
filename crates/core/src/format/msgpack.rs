//! MessagePack, as far as JSON has a form for it: no binary strings, no extension types, keys are
//! text.

use std::borrow::Cow;

use super::binary::{Number, Reader, float, integer, number};
use super::fault::Fault;
use super::node::Node;

/// Reads one value, which must be all there is.
pub(crate) fn decode(data: &[u8]) -> Result<Node<'_>, Fault> {
    let mut reader = Reader::new(data);
    let node = value(&mut reader, 0)?;
    reader.end()?;
    Ok(node)
}

/// Whether data that begins so may be a map.
pub(crate) fn begins_map(first: u8) -> bool {
    matches!(first, 0x80..=0x8f | 0xde | 0xdf)
}

fn value<'d>(reader: &mut Reader<'d>, depth: usize) -> Result<Node<'d>, Fault> {
    let first = reader.byte()?;
    Ok(match first {
        0x00..=0x7f => integer(first),
        0x80..=0x8f => map(reader, u64::from(first & 0x0f), depth)?,
        0x90..=0x9f => array(reader, u64::from(first & 0x0f), depth)?,
        0xa0..=0xbf => text(reader, u64::from(first & 0x1f))?,
        0xc0 => Node::Null,
        0xc2 => Node::Bool(false),
        0xc3 => Node::Bool(true),
        0xca => float(f64::from(f32::from_be_bytes(reader.array()?)))?,
        0xcb => float(f64::from_be_bytes(reader.array()?))?,
        0xcc => integer(reader.byte()?),
        0xcd => integer(u16::from_be_bytes(reader.array()?)),
        0xce => integer(u32::from_be_bytes(reader.array()?)),
        0xcf => integer(u64::from_be_bytes(reader.array()?)),
        0xd0 => integer(i8::from_be_bytes(reader.array()?)),
        0xd1 => integer(i16::from_be_bytes(reader.array()?)),
        0xd2 => integer(i32::from_be_bytes(reader.array()?)),
        0xd3 => integer(i64::from_be_bytes(reader.array()?)),
        0xd9 => {
            let length = reader.byte()?.into();
            text(reader, length)?
        }
        0xda => {
            let length = u16::from_be_bytes(reader.array()?).into();
            text(reader, length)?
        }
        0xdb => {
            let length = u32::from_be_bytes(reader.array()?).into();
            text(reader, length)?
        }
        0xdc => {
            let length = u16::from_be_bytes(reader.array()?).into();
            array(reader, length, depth)?
        }
        0xdd => {
            let length = u32::from_be_bytes(reader.array()?).into();
            array(reader, length, depth)?
        }
        0xde => {
            let length = u16::from_be_bytes(reader.array()?).into();
            map(reader, length, depth)?
        }
        0xdf => {
            let length = u32::from_be_bytes(reader.array()?).into();
            map(reader, length, depth)?
        }
        0xe0..=0xff => integer(i8::from_be_bytes([first])),
        _ => return reader.fault("binary strings and extensions have no form in JSON"),
    })
}

fn text<'d>(reader: &mut Reader<'d>, length: u64) -> Result<Node<'d>, Fault> {
    Ok(Node::String(Cow::Borrowed(reader.text(length)?)))
}

fn array<'d>(reader: &mut Reader<'d>, length: u64, depth: usize) -> Result<Node<'d>, Fault> {
    reader.enter(length, depth)?;
    let mut items = Vec::new();
    for _ in 0..length {
        items.push(value(reader, depth + 1)?);
    }
    Ok(Node::Array(items))
}

fn map<'d>(reader: &mut Reader<'d>, length: u64, depth: usize) -> Result<Node<'d>, Fault> {
    reader.enter(length, depth)?;
    let mut members = Vec::new();
    for _ in 0..length {
        let Some(0xa0..=0xbf | 0xd9..=0xdb) = reader.peek() else {
            return reader.fault("a key of a map isn't text");
        };
        let Node::String(key) = value(reader, depth + 1)? else {
            return reader.fault("a key of a map isn't text");
        };
        members.push((key, value(reader, depth + 1)?));
    }
    reader.object(members)
}

/// Writes a value in the shortest form that holds it.
pub(crate) fn encode(node: &Node<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    match node {
        Node::Null => out.push(0xc0),
        Node::Bool(false) => out.push(0xc2),
        Node::Bool(true) => out.push(0xc3),
        Node::Number(text) => match number(text)? {
            Number::Integer(value) => write_integer(value, out)?,
            Number::Float(value) => {
                out.push(0xcb);
                out.extend_from_slice(&value.to_be_bytes());
            }
        },
        Node::String(text) => write_text(text, out)?,
        Node::Array(items) => {
            write_length(items.len(), (0x90, 15), [None, Some(0xdc), Some(0xdd)], out)?;
            for item in items {
                encode(item, out)?;
            }
        }
        Node::Object(members) => {
            write_length(
                members.len(),
                (0x80, 15),
                [None, Some(0xde), Some(0xdf)],
                out,
            )?;
            for (key, value) in members {
                write_text(key, out)?;
                encode(value, out)?;
            }
        }
    }
    Ok(())
}

fn write_text(text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    let heads = [Some(0xd9), Some(0xda), Some(0xdb)];
    write_length(text.len(), (0xa0, 31), heads, out)?;
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// A length of at most `most` within its head; else behind one of 8, 16 or 32 bits.
fn write_length(
    length: usize,
    (head, most): (u8, u8),
    heads: [Option<u8>; 3],
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let [bits8, bits16, bits32] = heads;
    match (u8::try_from(length), bits8) {
        (Ok(short), _) if short <= most => {
            out.push(head | short);
            return Ok(());
        }
        (Ok(short), Some(head)) => {
            out.extend_from_slice(&[head, short]);
            return Ok(());
        }
        _ => {}
    }
    if let (Ok(length), Some(head)) = (u16::try_from(length), bits16) {
        out.push(head);
        out.extend_from_slice(&length.to_be_bytes());
        return Ok(());
    }
    let (Ok(length), Some(head)) = (u32::try_from(length), bits32) else {
        return Err(Fault::new("it is longer than MessagePack can say"));
    };
    out.push(head);
    out.extend_from_slice(&length.to_be_bytes());
    Ok(())
}

fn write_integer(value: i128, out: &mut Vec<u8>) -> Result<(), Fault> {
    if let Ok(value) = u64::try_from(value) {
        if let Ok(small @ 0..0x80) = u8::try_from(value) {
            out.push(small);
        } else if let Ok(value) = u8::try_from(value) {
            out.extend_from_slice(&[0xcc, value]);
        } else if let Ok(value) = u16::try_from(value) {
            out.push(0xcd);
            out.extend_from_slice(&value.to_be_bytes());
        } else if let Ok(value) = u32::try_from(value) {
            out.push(0xce);
            out.extend_from_slice(&value.to_be_bytes());
        } else {
            out.push(0xcf);
            out.extend_from_slice(&value.to_be_bytes());
        }
    } else if let Ok(small @ -32..0) = i8::try_from(value) {
        out.extend_from_slice(&small.to_be_bytes());
    } else if let Ok(value) = i8::try_from(value) {
        out.push(0xd0);
        out.extend_from_slice(&value.to_be_bytes());
    } else if let Ok(value) = i16::try_from(value) {
        out.push(0xd1);
        out.extend_from_slice(&value.to_be_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.push(0xd2);
        out.extend_from_slice(&value.to_be_bytes());
    } else if let Ok(value) = i64::try_from(value) {
        out.push(0xd3);
        out.extend_from_slice(&value.to_be_bytes());
    } else {
        return Err(Fault::new(
            "64 bits can't hold a number without changing it",
        ));
    }
    Ok(())
}
