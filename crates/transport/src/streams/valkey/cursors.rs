//! Which streams a reader reads, and from where. No I/O and no clock.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossway_core::entry::EntryId;

use super::encode::Outgoing;
use crate::streams::{Key, ReadEntry, ReaderOptions};

/// How long a key that isn't a stream is left alone.
pub(crate) const LEFT_OUT: Duration = Duration::from_secs(5);

/// The streams of a reader and its place in each.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    streams: Vec<Stream>,
    index: HashMap<Key, usize>,
    /// The command for these streams and places; made again when they change.
    command: Option<Command>,
    /// Every stream is known to have its group and none is left out. Kept, so that what happens
    /// at every read doesn't grow with the number of streams.
    steady: bool,
    /// Counts assignments.
    serial: u64,
}

/// A read, ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    pub(crate) pieces: Vec<Bytes>,
    /// Whether it waits for something to arrive; it asks for nothing but what is new then.
    pub(crate) waits: bool,
    /// The assignment it was made for.
    pub(crate) serial: u64,
}

/// One stream and the place in it.
#[derive(Debug)]
pub(crate) struct Stream {
    key: Key,
    place: Place,
    group: Group,
    left_out_until: Option<Instant>,
    /// The assignment that brought it.
    since: u64,
    /// When it last had something.
    active: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Among the entries that are already pending, after this one.
    Pending(EntryId),
    /// At what nobody was given yet.
    New,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    /// Not known to exist.
    Unknown,
    /// It existed at some time.
    Seen,
    /// It existed, and the store said that it doesn't any more.
    Vanished,
}

const OLDEST: Place = Place::Pending(EntryId::ZERO);

impl Cursors {
    /// Replaces the streams; those that stay keep their place. Whether anything changed.
    pub(crate) fn assign(&mut self, keys: Vec<Key>) -> bool {
        let mut before: HashMap<Key, Stream> = std::mem::take(&mut self.streams)
            .into_iter()
            .map(|stream| (stream.key.clone(), stream))
            .collect();
        let old_index = std::mem::take(&mut self.index);
        self.serial += 1;
        let since = self.serial;
        for key in keys {
            if self.index.contains_key(&key) {
                continue;
            }
            let fresh = || Stream {
                key: key.clone(),
                place: OLDEST,
                group: Group::Unknown,
                left_out_until: None,
                since,
                active: None,
            };
            let stream = before.remove(&key).unwrap_or_else(fresh);
            self.index.insert(key, self.streams.len());
            self.streams.push(stream);
        }
        let changed = self.index != old_index;
        if changed {
            self.command = None;
            self.steady = false;
        }
        changed
    }

    /// Goes back to the oldest pending entry everywhere.
    pub(crate) fn rewind(&mut self) {
        for stream in &mut self.streams {
            stream.place = OLDEST;
        }
        self.command = None;
    }

    /// Lets streams back in that have been left out long enough, and tells those whose group must
    /// be made before they can be read.
    pub(crate) fn without_group(&mut self, now: Instant) -> Vec<Key> {
        if self.steady {
            return Vec::new();
        }
        for stream in &mut self.streams {
            if stream.left_out_until.is_some_and(|until| until <= now) {
                stream.left_out_until = None;
                self.command = None;
            }
        }
        let missing = self.read().filter(|stream| stream.group != Group::Seen);
        let missing: Vec<Key> = missing.map(|stream| stream.key.clone()).collect();
        self.steady = missing.is_empty() && self.next_return().is_none();
        missing
    }

    /// The group of a stream exists now; `made` when it didn't before. Whether it had vanished.
    pub(crate) fn has_group(&mut self, key: &str, made: bool) -> bool {
        let Some(stream) = self.stream(key) else {
            return false;
        };
        let vanished = made && stream.group == Group::Vanished;
        stream.group = Group::Seen;
        if vanished {
            stream.place = OLDEST;
            self.command = None;
        }
        vanished
    }

    /// The store said that some group is missing, without saying reliably which.
    pub(crate) fn doubt_groups(&mut self) {
        self.steady = false;
        for stream in &mut self.streams {
            if stream.group == Group::Seen {
                stream.group = Group::Vanished;
            }
        }
    }

    /// Leaves a key out for a while.
    pub(crate) fn leave_out(&mut self, key: &str, now: Instant) {
        if let Some(stream) = self.stream(key) {
            stream.left_out_until = Some(now + LEFT_OUT);
            stream.group = Group::Unknown;
            self.command = None;
            self.steady = false;
        }
    }

    /// When the next stream that is left out comes back.
    pub(crate) fn next_return(&self) -> Option<Instant> {
        if self.steady {
            return None;
        }
        self.streams
            .iter()
            .filter_map(|stream| stream.left_out_until)
            .min()
    }

    /// The next read, where it may be sent ahead of its time: it waits for what is new, and is the
    /// same whatever happens until then.
    pub(crate) fn ahead(&self) -> Option<Command> {
        self.command
            .as_ref()
            .filter(|command| self.steady && command.waits)
            .cloned()
    }

    /// The keys that are read.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.read().map(|stream| stream.key.clone()).collect()
    }

    /// The command of the next read, `None` when there is nothing to read. It waits for at most
    /// `block`, and not at all while pending entries are given.
    pub(crate) fn command(&mut self, options: &ReaderOptions, block: Duration) -> Option<Command> {
        // With a stream left out the wait ends when it comes back, so the command isn't always the same.
        let reusable = block == options.block;
        if reusable && self.command.is_some() {
            return self.command.clone();
        }
        let streams = self.read().count();
        if streams == 0 {
            return None;
        }
        let waits = self.read().all(|stream| stream.place == Place::New);
        let mut out = Outgoing::default();
        out.command(7 + 2 * usize::from(waits) + 2 * streams);
        out.word(b"XREADGROUP").word(b"GROUP");
        out.word(options.group.as_bytes())
            .word(options.consumer.as_bytes());
        out.word(b"COUNT")
            .number(u64::try_from(options.count.max(1)).unwrap_or(u64::MAX));
        if waits {
            // Zero would mean without end.
            let ms = u64::try_from(block.as_millis())
                .unwrap_or(u64::MAX)
                .clamp(1, u64::from(u32::MAX));
            out.word(b"BLOCK").number(ms);
        }
        out.word(b"STREAMS");
        for stream in self.read() {
            out.word(stream.key.as_bytes());
        }
        for stream in self.read() {
            match stream.place {
                Place::Pending(EntryId::ZERO) => out.word(b"0"),
                Place::Pending(id) => out.id(id),
                Place::New => out.word(b">"),
            };
        }
        let command = Command {
            pieces: out.pieces(),
            waits,
            serial: self.serial,
        };
        if reusable {
            self.command = Some(command.clone());
        }
        Some(command)
    }

    /// Notes what the read of assignment `serial` gave from one stream. Gives its key, or `None`
    /// if the entries aren't to be given: the stream isn't read any more, or it was left and came
    /// back since, so that they will come as pending ones.
    pub(crate) fn took(
        &mut self,
        name: &[u8],
        entries: &[ReadEntry],
        count: usize,
        serial: u64,
        now: Instant,
    ) -> Option<Key> {
        let stream = self.stream(std::str::from_utf8(name).ok()?)?;
        if stream.since > serial {
            return None;
        }
        let key = stream.key.clone();
        if stream.active.is_none() || !entries.is_empty() {
            stream.active = Some(now);
        }
        if let Place::Pending(_) = stream.place {
            // Fewer than were asked for are the last of them.
            stream.place = match entries.last() {
                Some(last) if entries.len() >= count.max(1) => Place::Pending(id(last)),
                _ => Place::New,
            };
            self.command = None;
        }
        Some(key)
    }

    /// Every stream, those that are left out as well.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Key> {
        self.streams.iter().map(|stream| &stream.key)
    }

    /// Streams that had nothing for so long, at most so many, the quietest first.
    pub(crate) fn quiet_since(&self, now: Instant, quiet_for: Duration, most: usize) -> Vec<Key> {
        let quiet = |stream: &&Stream| {
            stream
                .active
                .is_some_and(|at| now.saturating_duration_since(at) >= quiet_for)
        };
        let mut quiet: Vec<&Stream> = self.streams.iter().filter(quiet).collect();
        quiet.sort_unstable_by_key(|stream| stream.active);
        quiet
            .into_iter()
            .take(most)
            .map(|stream| stream.key.clone())
            .collect()
    }

    /// Takes a stream out, if its place is at what is new.
    pub(crate) fn release(&mut self, key: &str) -> Option<Stream> {
        let at = *self.index.get(key)?;
        let movable = |stream: &Stream| {
            stream.place == Place::New
                && stream.group == Group::Seen
                && stream.left_out_until.is_none()
        };
        if !self.streams.get(at).is_some_and(movable) {
            return None;
        }
        let stream = self.streams.swap_remove(at);
        self.index.remove(key);
        if let Some(moved) = self.streams.get(at) {
            self.index.insert(moved.key.clone(), at);
        }
        self.command = None;
        Some(stream)
    }

    /// Takes a stream in that another has released.
    pub(crate) fn adopt(&mut self, stream: Stream) {
        self.serial += 1;
        self.index.insert(stream.key.clone(), self.streams.len());
        self.streams.push(Stream {
            since: self.serial,
            ..stream
        });
        self.command = None;
    }

    fn stream(&mut self, key: &str) -> Option<&mut Stream> {
        self.streams.get_mut(*self.index.get(key)?)
    }

    fn read(&self) -> impl Iterator<Item = &Stream> {
        self.streams
            .iter()
            .filter(|stream| stream.left_out_until.is_none())
    }
}

fn id(entry: &ReadEntry) -> EntryId {
    match entry {
        ReadEntry::Whole(entry) => entry.id,
        ReadEntry::Oversize { id, .. } | ReadEntry::Gone(id) => *id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> ReaderOptions {
        ReaderOptions {
            group: "g".into(),
            consumer: "c".into(),
            count: 2,
            block: Duration::from_millis(100),
            max_entry_bytes: 100,
            max_fields: 10,
            watched: Vec::new(),
        }
    }

    fn words(cursors: &mut Cursors) -> String {
        let pieces = cursors
            .command(&options(), options().block)
            .map(|command| command.pieces)
            .unwrap_or_default()
            .concat();
        let text = String::from_utf8(pieces).unwrap();
        let words: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with(['*', '$']))
            .collect();
        words.join(" ")
    }

    fn keys(keys: &[&str]) -> Vec<Key> {
        keys.iter().map(|key| Key::from(*key)).collect()
    }

    fn gone(ms: u64) -> ReadEntry {
        ReadEntry::Gone(EntryId::new(ms, 1))
    }

    #[test]
    fn pending_entries_are_read_to_their_end_before_new_ones() {
        let mut cursors = Cursors::default();
        assert!(cursors.assign(keys(&["a", "b"])));
        assert_eq!(
            words(&mut cursors),
            "XREADGROUP GROUP g c COUNT 2 STREAMS a b 0 0"
        );
        cursors.took(b"a", &[gone(1), gone(2)], 2, 1, Instant::now());
        cursors.took(b"b", &[gone(1)], 2, 1, Instant::now());
        assert_eq!(
            words(&mut cursors),
            "XREADGROUP GROUP g c COUNT 2 STREAMS a b 2-1 >"
        );
        cursors.took(b"a", &[], 2, 1, Instant::now());
        assert_eq!(
            words(&mut cursors),
            "XREADGROUP GROUP g c COUNT 2 BLOCK 100 STREAMS a b > >"
        );
        assert!(!cursors.assign(keys(&["a", "b"])));
        assert!(cursors.assign(keys(&["b", "c"])));
        assert_eq!(
            words(&mut cursors),
            "XREADGROUP GROUP g c COUNT 2 STREAMS b c > 0"
        );
        cursors.rewind();
        assert_eq!(
            words(&mut cursors),
            "XREADGROUP GROUP g c COUNT 2 STREAMS b c 0 0"
        );
        assert_eq!(cursors.took(b"a", &[gone(1)], 2, 9, Instant::now()), None);
        assert_eq!(cursors.took(b"c", &[gone(1)], 2, 1, Instant::now()), None);
    }

    #[test]
    fn a_group_is_remade_only_where_there_was_one() {
        let mut cursors = Cursors::default();
        let now = Instant::now();
        cursors.assign(keys(&["a", "b"]));
        assert_eq!(cursors.without_group(now), keys(&["a", "b"]));
        assert!(!cursors.has_group("a", true));
        assert!(!cursors.has_group("b", false));
        cursors.doubt_groups();
        assert_eq!(cursors.without_group(now), keys(&["a", "b"]));
        assert!(cursors.has_group("a", true));
        assert!(!cursors.has_group("b", false));
        assert!(cursors.without_group(now).is_empty());
    }

    #[test]
    fn a_key_that_is_left_out_comes_back() {
        let mut cursors = Cursors::default();
        let now = Instant::now();
        cursors.assign(keys(&["a", "b"]));
        for key in ["a", "b"] {
            cursors.has_group(key, false);
            cursors.took(key.as_bytes(), &[], 2, 1, Instant::now());
        }
        assert!(cursors.without_group(now).is_empty());
        assert_eq!(
            words(&mut cursors),
            "XREADGROUP GROUP g c COUNT 2 BLOCK 100 STREAMS a b > >"
        );
        assert!(cursors.ahead().is_some());
        cursors.leave_out("a", now);
        assert!(cursors.ahead().is_none());
        assert_eq!(
            words(&mut cursors),
            "XREADGROUP GROUP g c COUNT 2 BLOCK 100 STREAMS b >"
        );
        assert_eq!(cursors.next_return(), Some(now + LEFT_OUT));
        assert!(cursors.without_group(now).is_empty());
        assert_eq!(cursors.without_group(now + LEFT_OUT), keys(&["a"]));
    }

    #[test]
    fn nothing_is_asked_without_streams() {
        assert_eq!(words(&mut Cursors::default()), "");
        assert!(Cursors::default().ahead().is_none());
    }
}
