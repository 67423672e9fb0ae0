//! Which streams a reader reads, the place in each, and which are to be read next. No I/O.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crossway_core::entry::EntryId;

use crate::streams::{Key, ReadEntry};

/// How long a key that isn't a stream is left alone.
const LEFT_OUT: Duration = Duration::from_secs(5);
/// How often every stream is looked at, whether or not it was told of: a slot may have moved
/// while nobody listened.
const ROUTINE: Duration = Duration::from_secs(2);

/// The streams of a reader.
#[derive(Debug)]
pub(crate) struct Places {
    streams: HashMap<Key, Stream>,
    /// Those to be read, the one that waited longest first; some may have left since.
    queue: VecDeque<Key>,
    routine_at: Instant,
}

#[derive(Debug)]
struct Stream {
    /// After which of the pending entries; `None` at what nobody was given yet.
    pending_after: Option<EntryId>,
    /// The group existed at some time.
    had_group: bool,
    left_out_until: Option<Instant>,
    queued: bool,
}

impl Stream {
    fn new() -> Stream {
        Stream {
            pending_after: Some(EntryId::ZERO),
            had_group: false,
            left_out_until: None,
            queued: false,
        }
    }
}

impl Places {
    pub(crate) fn new(now: Instant) -> Places {
        Places {
            streams: HashMap::new(),
            queue: VecDeque::new(),
            routine_at: now + ROUTINE,
        }
    }

    /// Replaces the streams; those that stay keep their place.
    pub(crate) fn assign(&mut self, keys: Vec<Key>) {
        let mut before = std::mem::take(&mut self.streams);
        for key in keys {
            let stream = before.remove(&key).unwrap_or_else(Stream::new);
            self.streams.insert(key.clone(), stream);
            self.stir(&key);
        }
    }

    /// Goes back to the oldest pending entry of those streams that `which` names.
    pub(crate) fn rewind(&mut self, which: impl Fn(&str) -> bool) {
        let keys: Vec<Key> = self
            .streams
            .keys()
            .filter(|key| which(key))
            .cloned()
            .collect();
        for key in keys {
            if let Some(stream) = self.streams.get_mut(&key) {
                stream.pending_after = Some(EntryId::ZERO);
            }
            self.stir(&key);
        }
    }

    /// A stream is to be read.
    pub(crate) fn stir(&mut self, key: &str) {
        if let Some((key, stream)) = self.streams.get_key_value(key)
            && !stream.queued
        {
            let key = key.clone();
            if let Some(stream) = self.streams.get_mut(&key) {
                stream.queued = true;
            }
            self.queue.push_back(key);
        }
    }

    /// All streams are to be read.
    pub(crate) fn stir_all(&mut self) {
        let keys: Vec<Key> = self.streams.keys().cloned().collect();
        for key in keys {
            self.stir(&key);
        }
    }

    /// When there is something to be done though nothing is told.
    pub(crate) fn next_routine(&self) -> Instant {
        self.routine_at
    }

    /// The streams to be read next, at most so many, with where: `None` for what is new.
    pub(crate) fn due(&mut self, most: usize, now: Instant) -> Vec<(Key, Option<EntryId>)> {
        if now >= self.routine_at {
            self.routine_at = now + ROUTINE;
            self.stir_all();
        }
        let mut due = Vec::new();
        while due.len() < most {
            let Some(key) = self.queue.pop_front() else {
                break;
            };
            let Some(stream) = self.streams.get_mut(&key) else {
                continue;
            };
            stream.queued = false;
            if stream.left_out_until.is_none_or(|until| until <= now) {
                stream.left_out_until = None;
                due.push((key, stream.pending_after));
            }
        }
        due
    }

    /// Whether nothing was ever read of a stream.
    pub(crate) fn is_new(&self, key: &str) -> bool {
        self.streams
            .get(key)
            .is_some_and(|stream| !stream.had_group)
    }

    /// Notes what a read gave; with more to come the stream is to be read again.
    pub(crate) fn took(&mut self, key: &str, entries: &[ReadEntry], count: usize) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        stream.had_group = true;
        let full = entries.len() >= count.max(1);
        let was_pending = stream.pending_after.is_some();
        if was_pending {
            // Fewer than were asked for are the last of them.
            stream.pending_after = match entries.last() {
                Some(last) if full => Some(id(last)),
                _ => None,
            };
        }
        if full || was_pending {
            self.stir(key);
        }
    }

    /// The group exists now; `made` when it didn't before. Whether it had vanished.
    pub(crate) fn has_group(&mut self, key: &str, made: bool) -> bool {
        let Some(stream) = self.streams.get_mut(key) else {
            return false;
        };
        let vanished = made && stream.had_group;
        stream.had_group = true;
        if vanished {
            stream.pending_after = Some(EntryId::ZERO);
        }
        self.stir(key);
        vanished
    }

    /// Leaves a key out for a while.
    pub(crate) fn leave_out(&mut self, key: &str, now: Instant) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.left_out_until = Some(now + LEFT_OUT);
            stream.had_group = false;
        }
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

    fn gone(ms: u64) -> ReadEntry {
        ReadEntry::Gone(EntryId::new(ms, 0))
    }

    #[test]
    fn pending_entries_are_paged_through_before_what_is_new() {
        let now = Instant::now();
        let mut places = Places::new(now);
        places.assign(vec!["a".into()]);
        assert_eq!(places.due(9, now), [("a".into(), Some(EntryId::ZERO))]);
        places.took("a", &[gone(1), gone(2)], 2);
        assert_eq!(places.due(9, now), [("a".into(), Some(EntryId::new(2, 0)))]);
        places.took("a", &[gone(3)], 2);
        assert_eq!(places.due(9, now), [("a".into(), None)]);
        places.took("a", &[], 2);
        assert!(places.due(9, now).is_empty());
        places.stir("a");
        places.stir("a");
        places.stir("nobody");
        assert_eq!(places.due(9, now), [("a".into(), None)]);
        assert_eq!(places.due(9, now + ROUTINE), [("a".into(), None)]);
    }

    #[test]
    fn a_stream_that_is_left_out_comes_back() {
        let now = Instant::now();
        let mut places = Places::new(now);
        places.assign(vec!["a".into()]);
        places.due(9, now);
        places.leave_out("a", now);
        places.stir("a");
        assert!(places.due(9, now).is_empty());
        assert_eq!(places.due(9, now + LEFT_OUT).len(), 1);
    }
}
