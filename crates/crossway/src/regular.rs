//! Reads whole files that somebody named: never one that could keep a reader waiting for ever, and
//! never more of it than a limit.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// The bytes of a regular file.
///
/// # Errors
/// Where it can't be read, isn't a regular file, or has more than `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // Asked before it is opened, because opening alone has effects on some devices; and after,
    // because another file may have taken its place. Opening never waits for a pipe's other end.
    regular(&fs::metadata(path)?)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    regular(&file.metadata()?)?;
    bounded(file, limit)
}

/// All bytes of a source, counted as they come.
///
/// # Errors
/// Where it can't be read, or gives more than `limit` bytes.
pub(crate) fn bounded<R: Read>(from: R, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("it has more than {limit} bytes")));
    }
    Ok(bytes)
}

fn regular(found: &Metadata) -> io::Result<()> {
    if found.is_file() {
        return Ok(());
    }
    Err(io::Error::other("it isn't a regular file"))
}
