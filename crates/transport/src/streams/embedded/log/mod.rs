//! The append-only log of an embedded store.
//!
//! One record for each step, handed to the system before the step is applied and answered; so a
//! process that is killed loses nothing that was answered, and a step that can't be written isn't
//! done. What `fsync` adds, against loss of power, is the [`keeper`]'s work.

mod codec;
pub(crate) mod keeper;
pub(crate) mod record;
mod room;
pub(crate) mod segment;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use self::room::Room;
use self::segment::Ending;
use super::engine::{Effect, Engine};
use crate::streams::StoreError;

/// A log shorter than this is left as it is: reading it again takes a fraction of a second.
const COMPACT_ABOVE: u64 = 64 << 20;

/// A buffer for one record that has grown beyond this is given back.
const KEPT_BUFFER: usize = 1 << 20;

/// The log, open for appending.
#[derive(Debug)]
pub(crate) struct Log {
    dir: PathBuf,
    number: u64,
    file: Arc<File>,
    /// Length of the segment that is written to.
    len: u64,
    /// Bytes ever appended since the store was opened: the position that durability is told by.
    written: u64,
    /// Bytes of the segments before this one that no snapshot stands for yet, and of this one.
    uncompacted: u64,
    /// Length of the last snapshot, near enough the size of the live data.
    snapshot: u64,
    /// Set when the file can't be trusted to take another record.
    broken: Option<String>,
    room: Room,
    buffer: Vec<u8>,
    /// Held for as long as the store is open; the lock on it keeps other processes out.
    _lock: File,
}

/// Opens the log in a folder and applies what it holds.
pub(crate) fn open(dir: &Path) -> Result<(Log, Engine), StoreError> {
    let failed = |path: &Path, what: &str| {
        let (path, what) = (path.display().to_string(), what.to_owned());
        move |error: std::io::Error| StoreError::Disk {
            path,
            reason: format!("{what}: {error}"),
        }
    };
    fs::create_dir_all(dir).map_err(failed(dir, "the folder can't be made; check who owns it"))?;
    let lock = lock(dir)?;
    let listing = segment::list(dir).map_err(failed(dir, "the folder can't be read"))?;
    for path in &listing.unfinished {
        fs::remove_file(path).map_err(failed(path, "an unfinished snapshot can't be removed"))?;
    }
    let mut engine = Engine::default();
    let base = listing.snapshots.last().copied();
    let mut snapshot = 0;
    if let Some(number) = base {
        let path = segment::snapshot_path(dir, number);
        match segment::replay(&path, &mut engine)
            .map_err(failed(&path, "the snapshot can't be read"))?
        {
            Ending::Whole { len } => snapshot = len,
            Ending::Torn { len: offset, .. } | Ending::Damaged { offset } => {
                return Err(damaged(&path, offset));
            }
            Ending::Foreign => return Err(foreign(&path)),
        }
    }
    let first = base.or(listing.segments.first().copied()).unwrap_or(1);
    let mut number = first;
    let mut uncompacted = 0u64;
    let mut end = None;
    let live: Vec<u64> = listing
        .segments
        .iter()
        .copied()
        .filter(|segment| *segment >= first)
        .collect();
    for (at, segment) in live.iter().copied().enumerate() {
        let path = segment::segment_path(dir, segment);
        if segment != number {
            let missing = segment::segment_path(dir, number);
            let reason = "this file of the log is missing, and later ones are there; restore it from a backup".to_owned();
            return Err(StoreError::Disk {
                path: missing.display().to_string(),
                reason,
            });
        }
        let last = at.saturating_add(1) == live.len();
        let len = match segment::replay(&path, &mut engine)
            .map_err(failed(&path, "the log can't be read"))?
        {
            Ending::Whole { len } => len,
            Ending::Torn { len, dropped } if last => {
                tracing::warn!(file = %path.display(), offset = len, dropped, "the log ended within a record, which was never acknowledged; the rest was cut off");
                let file = fs::OpenOptions::new().write(true).open(&path);
                file.and_then(|file| file.set_len(len).and_then(|()| file.sync_all()))
                    .map_err(failed(&path, "the torn end of the log can't be cut off"))?;
                len
            }
            Ending::Torn { len: offset, .. } | Ending::Damaged { offset } => {
                return Err(damaged(&path, offset));
            }
            Ending::Foreign => return Err(foreign(&path)),
        };
        uncompacted = uncompacted.saturating_add(len);
        end = Some((segment, len));
        number = segment.saturating_add(1);
    }
    let (number, file, len) = match end {
        Some((segment, len)) if len >= segment::MAGIC.len() as u64 => {
            let path = segment::segment_path(dir, segment);
            let file = fs::OpenOptions::new()
                .append(true)
                .open(&path)
                .map_err(failed(&path, "the log can't be opened"))?;
            (segment, file, len)
        }
        begun => {
            let segment = begun.map_or(first, |(segment, _)| segment);
            let path = segment::segment_path(dir, segment);
            let file =
                segment::create(dir, segment).map_err(failed(&path, "the log can't be made"))?;
            (segment, file, segment::MAGIC.len() as u64)
        }
    };
    remove_before(dir, first);
    let file = Arc::new(file);
    let (dir, buffer) = (dir.to_owned(), Vec::new());
    let log = Log {
        dir,
        number,
        file,
        len,
        written: 0,
        uncompacted,
        snapshot,
        broken: None,
        room: Room::default(),
        buffer,
        _lock: lock,
    };
    Ok((log, engine))
}

fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join("lock");
    let disk = |reason: String| StoreError::Disk {
        path: dir.display().to_string(),
        reason,
    };
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|error| {
            disk(format!(
                "the folder can't be locked: {error}; check who owns it"
            ))
        })?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => Err(disk(
            "the folder is in use by another process; stop that one, or choose another data folder"
                .to_owned(),
        )),
        Err(error) => Err(disk(format!("the folder can't be locked: {error}"))),
    }
}

fn damaged(path: &Path, offset: u64) -> StoreError {
    let reason = format!(
        "the record at byte {offset} is damaged, and it isn't just the end that was cut short; \
         restore the folder from a backup, or cut the file off at byte {offset} to give up everything after it"
    );
    StoreError::Disk {
        path: path.display().to_string(),
        reason,
    }
}

fn foreign(path: &Path) -> StoreError {
    let reason =
        "this isn't a log of this program, or is one of a later version; move it away".to_owned();
    StoreError::Disk {
        path: path.display().to_string(),
        reason,
    }
}

/// Removes what a snapshot stands for. What can't be removed is tried again at the next start.
fn remove_before(dir: &Path, number: u64) {
    let Ok(listing) = segment::list(dir) else {
        return;
    };
    let segments = listing
        .segments
        .iter()
        .filter(|old| **old < number)
        .map(|old| segment::segment_path(dir, *old));
    let snapshots = listing
        .snapshots
        .iter()
        .filter(|old| **old < number)
        .map(|old| segment::snapshot_path(dir, *old));
    for path in segments.chain(snapshots) {
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(file = %path.display(), %error, "an outdated file of the log can't be removed");
        }
    }
}

impl Log {
    /// Hands the effects of one step to the system as one record. Where that fails nothing of it
    /// stays in the file, and the step must not be done.
    pub(crate) fn append(&mut self, effects: &[Effect]) -> Result<(), StoreError> {
        if let Some(reason) = &self.broken {
            return Err(self.refused(reason));
        }
        if record::encode(effects, &mut self.buffer).is_none() {
            return Err(self.refused("one step is larger than a record can be, 4 GiB"));
        }
        if let Err(error) = (&*self.file).write_all(&self.buffer) {
            // A part of the record may be there; whatever is written later must not come behind it.
            if let Err(stuck) = self.file.set_len(self.len) {
                self.broken = Some(format!(
                    "a record was written in part ({error}) and can't be taken back ({stuck}); restart once the disk is well"
                ));
            }
            let why = format!("the log can't be written: {error}");
            let refusal = format!("{why}; nothing was changed, make room and try again");
            self.room.refused(self.buffer.len(), why, Instant::now());
            return Err(self.refused(&refusal));
        }
        self.room.taken(self.buffer.len());
        let len = self.buffer.len() as u64;
        self.len = self.len.saturating_add(len);
        self.written = self.written.saturating_add(len);
        self.uncompacted = self.uncompacted.saturating_add(len);
        if self.buffer.capacity() > KEPT_BUFFER {
            self.buffer = Vec::new();
        }
        Ok(())
    }

    /// The refusal of a write; it may succeed once the disk is well again.
    fn refused(&self, reason: &str) -> StoreError {
        let path = segment::segment_path(&self.dir, self.number);
        StoreError::Refused {
            command: "a write",
            key: String::new(),
            reason: format!("MISCONF {}: {reason}", path.display()),
        }
    }

    /// How far the log has been written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Refuses all that comes from now on.
    pub(crate) fn give_up(&mut self, reason: String) {
        self.broken = Some(reason);
    }

    /// Why the log takes nothing, if so.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Why the log takes nothing now, or lately took something not.
    pub(crate) fn ails(&self, now: Instant) -> Option<&str> {
        self.broken.as_deref().or_else(|| self.room.lacks(now))
    }

    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Whether it has grown enough beyond the live data to be worth rewriting.
    pub(crate) fn wants_compaction(&self) -> bool {
        self.uncompacted > COMPACT_ABOVE && self.uncompacted > self.snapshot.saturating_mul(2)
    }

    /// Goes on in a new segment; gives its number. What is in the old one must be on the disk.
    pub(crate) fn rotate(&mut self) -> std::io::Result<u64> {
        let number = self.number.saturating_add(1);
        self.file = Arc::new(segment::create(&self.dir, number)?);
        self.number = number;
        self.len = segment::MAGIC.len() as u64;
        Ok(number)
    }

    /// Takes note of a snapshot that stands for everything before segment `number`.
    pub(crate) fn compacted(&mut self, number: u64, snapshot: u64) {
        if number == self.number {
            self.uncompacted = self.len;
        }
        self.snapshot = snapshot;
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}
