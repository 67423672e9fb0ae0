//! Records in a file: `length u32 | checksum of the payload u32 | checksum of these eight bytes u32 |
//! payload`, numbers little-endian.
//!
//! The header has a checksum of its own, so that a damaged length isn't taken for a record that
//! was cut short, and valid records behind a damaged one can be found.

use std::io::{self, Read};

use bytes::Bytes;

use super::codec;
use crate::streams::embedded::engine::Effect;

/// Bytes before the payload.
pub(crate) const HEADER: usize = 12;

/// Encodes effects as one record into an empty buffer. `None` where they are too large for one.
pub(crate) fn encode(effects: &[Effect], out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    out.resize(HEADER, 0);
    for effect in effects {
        codec::encode(effect, out);
    }
    let (header, payload) = out.split_at_mut(HEADER);
    let len = u32::try_from(payload.len()).ok()?;
    header.copy_from_slice(&header_of(len, crc32fast::hash(payload)));
    Some(())
}

fn header_of(len: u32, checksum: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let (first, rest) = header.split_at_mut(4);
    let (second, third) = rest.split_at_mut(4);
    first.copy_from_slice(&len.to_le_bytes());
    second.copy_from_slice(&checksum.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(first);
    hasher.update(second);
    third.copy_from_slice(&hasher.finalize().to_le_bytes());
    header
}

/// What comes next in a file.
pub(crate) enum Found {
    /// A whole record: its effects, and its length with the header.
    Record(Vec<Effect>, u64),
    /// The end of the file.
    End,
    /// Something that isn't a whole record.
    Damage,
}

/// Reads the record that comes next, where `left` bytes are left in the file.
pub(crate) fn read(file: &mut impl Read, left: u64) -> io::Result<Found> {
    if left == 0 {
        return Ok(Found::End);
    }
    if left < HEADER as u64 {
        return Ok(Found::Damage);
    }
    let mut header = [0; HEADER];
    file.read_exact(&mut header)?;
    let Some((len, checksum)) = parse(&header) else {
        return Ok(Found::Damage);
    };
    let whole = u64::from(len) + HEADER as u64;
    if whole > left {
        return Ok(Found::Damage);
    }
    let mut payload = vec![0; len as usize];
    file.read_exact(&mut payload)?;
    if crc32fast::hash(&payload) != checksum {
        return Ok(Found::Damage);
    }
    Ok(codec::decode(Bytes::from(payload))
        .map_or(Found::Damage, |effects| Found::Record(effects, whole)))
}

/// The length and the checksum that a header gives, if it is whole.
fn parse(header: &[u8; HEADER]) -> Option<(u32, u32)> {
    let (&len, rest) = header.split_first_chunk::<4>()?;
    let &checksum = rest.first_chunk::<4>()?;
    let (len, checksum) = (u32::from_le_bytes(len), u32::from_le_bytes(checksum));
    (header_of(len, checksum) == *header).then_some((len, checksum))
}

/// Whether a whole record stands anywhere in these bytes but at their beginning.
pub(crate) fn any_within(bytes: &[u8]) -> bool {
    let whole = |from: &[u8]| {
        let (header, rest) = from.split_first_chunk::<HEADER>()?;
        let (len, checksum) = parse(header)?;
        let payload = rest.get(..usize::try_from(len).ok()?)?;
        (crc32fast::hash(payload) == checksum).then_some(())
    };
    (1..bytes.len()).any(|at| bytes.get(at..).and_then(whole).is_some())
}
