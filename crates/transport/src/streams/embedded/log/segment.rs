//! The files of a log: segments that are appended to, and snapshots that stand for those before.
//!
//! `NUMBER.log` is a segment, `NUMBER.snapshot` the state before the segment of that number. A
//! snapshot has its name only once it is whole and on the disk.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::record::{self, Found};
use crate::streams::embedded::engine::{Effect, Engine};

/// How every file begins; the last byte is the version of the format.
pub(crate) const MAGIC: [u8; 8] = *b"CROSSWY\x01";

/// Effects in one record of a snapshot.
const EFFECTS_PER_RECORD: usize = 256;

/// Bytes that are gathered for one write of a snapshot.
const SNAPSHOT_BUFFER: usize = 1 << 20;

pub(crate) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016}.log"))
}

pub(crate) fn snapshot_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016}.snapshot"))
}

/// What a folder holds.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Numbers of segments, ascending.
    pub(crate) segments: Vec<u64>,
    /// Numbers of snapshots, ascending.
    pub(crate) snapshots: Vec<u64>,
    /// Snapshots that were never finished.
    pub(crate) unfinished: Vec<PathBuf>,
}

pub(crate) fn list(dir: &Path) -> io::Result<Listing> {
    let mut listing = Listing::default();
    for item in fs::read_dir(dir)? {
        let path = item?.path();
        let number = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .and_then(|stem| stem.parse().ok());
        match (
            path.extension().and_then(|extension| extension.to_str()),
            number,
        ) {
            (Some("log"), Some(number)) => listing.segments.push(number),
            (Some("snapshot"), Some(number)) => listing.snapshots.push(number),
            (Some("unfinished"), _) => listing.unfinished.push(path),
            _ => {}
        }
    }
    listing.segments.sort_unstable();
    listing.snapshots.sort_unstable();
    Ok(listing)
}

/// Where the whole records of a file end, and whether anything comes after them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The file ends with a whole record.
    Whole { len: u64 },
    /// The last record was cut short; whole ones end at `len`, and `dropped` bytes follow.
    Torn { len: u64, dropped: u64 },
    /// A damaged record at `offset`, with whole ones behind it.
    Damaged { offset: u64 },
    /// It doesn't begin as such a file does.
    Foreign,
}

/// Applies all whole records of a file.
pub(crate) fn replay(path: &Path, engine: &mut Engine) -> io::Result<Ending> {
    let file = File::open(path)?;
    let total = file.metadata()?.len();
    let mut file = BufReader::with_capacity(SNAPSHOT_BUFFER, file);
    let mut magic = Vec::new();
    file.by_ref()
        .take(MAGIC.len() as u64)
        .read_to_end(&mut magic)?;
    if magic != MAGIC {
        // A file that was being made when the machine stopped is a beginning of the magic bytes, or zeros.
        let begun = total <= MAGIC.len() as u64
            && (MAGIC.starts_with(&magic) || magic.iter().all(|byte| *byte == 0));
        return Ok(if begun {
            Ending::Torn {
                len: 0,
                dropped: total,
            }
        } else {
            Ending::Foreign
        });
    }
    let mut at = MAGIC.len() as u64;
    loop {
        let left = total.saturating_sub(at);
        match record::read(&mut file, left)? {
            Found::Record(effects, len) => {
                for effect in &effects {
                    engine.apply(effect);
                }
                at = at.saturating_add(len);
            }
            Found::End => return Ok(Ending::Whole { len: at }),
            Found::Damage => {
                let mut rest = Vec::new();
                file.seek(SeekFrom::Start(at))?;
                file.read_to_end(&mut rest)?;
                return Ok(if record::any_within(&rest) {
                    Ending::Damaged { offset: at }
                } else {
                    Ending::Torn {
                        len: at,
                        dropped: left,
                    }
                });
            }
        }
    }
}

/// Makes a new segment, or begins again one that has nothing in it, ready to be appended to.
pub(crate) fn create(dir: &Path, number: u64) -> io::Result<File> {
    let path = segment_path(dir, number);
    let mut file = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)?;
    file.set_len(0)?;
    file.write_all(&MAGIC)?;
    file.sync_all()?;
    sync_dir(dir)?;
    Ok(file)
}

/// Writes the state before segment `number`; it has its name when it is whole and on the disk.
/// Gives its length.
pub(crate) fn write_snapshot(dir: &Path, number: u64, engine: &Engine) -> io::Result<u64> {
    let path = snapshot_path(dir, number);
    let unfinished = path.with_extension("unfinished");
    let mut out = BufWriter::with_capacity(SNAPSHOT_BUFFER, File::create(&unfinished)?);
    let written = (|| {
        out.write_all(&MAGIC)?;
        let mut buffer = Vec::new();
        let mut waiting: Vec<Effect> = Vec::with_capacity(EFFECTS_PER_RECORD);
        engine.snapshot(|effect| {
            waiting.push(effect);
            if waiting.len() < EFFECTS_PER_RECORD {
                Ok(())
            } else {
                write_records(&mut out, &mut waiting, &mut buffer)
            }
        })?;
        write_records(&mut out, &mut waiting, &mut buffer)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        let len = out.get_ref().metadata()?.len();
        fs::rename(&unfinished, &path)?;
        sync_dir(dir)?;
        Ok(len)
    })();
    if written.is_err() {
        // It has no name that anybody reads; what can't be removed now is removed at the next start.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// Writes effects as one record, or, where they are too large for one, as a record each.
fn write_records(
    out: &mut impl Write,
    effects: &mut Vec<Effect>,
    buffer: &mut Vec<u8>,
) -> io::Result<()> {
    if !effects.is_empty() && record::encode(effects, buffer).is_some() {
        out.write_all(buffer)?;
        effects.clear();
    }
    for effect in effects.drain(..) {
        record::encode(&[effect], buffer)
            .ok_or_else(|| io::Error::other("a value is too large for one record"))?;
        out.write_all(buffer)?;
    }
    Ok(())
}

/// Puts a folder's list of files on the disk.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
