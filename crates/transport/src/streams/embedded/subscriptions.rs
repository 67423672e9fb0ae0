//! Readers within the process, and what each has to look at.
//!
//! A reader is told which of its streams have something for it, so that its work goes by the
//! streams in use and not by the streams there are.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::streams::Key;

#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    last: u64,
    seats: HashMap<u64, Seat>,
    streams: HashMap<Bytes, Vec<(u64, Key)>>,
    watched: HashMap<Bytes, Vec<u64>>,
}

/// One reader's place.
#[derive(Debug, Default)]
struct Seat {
    /// Streams to look at, the one that has waited longest first.
    ready: VecDeque<Key>,
    queued: HashSet<Key>,
    /// A watched key has changed since the reader was last told.
    changed: bool,
    wake: Arc<Notify>,
}

impl Seat {
    fn push(&mut self, stream: &Key) {
        if self.queued.insert(Arc::clone(stream)) {
            self.ready.push_back(Arc::clone(stream));
        }
    }
}

impl Subscriptions {
    /// A new reader that watches these keys.
    pub(crate) fn join(&mut self, watched: &[Key], wake: Arc<Notify>) -> u64 {
        self.last = self.last.saturating_add(1);
        self.seats.insert(
            self.last,
            Seat {
                wake,
                ..Seat::default()
            },
        );
        for key in watched {
            self.watched
                .entry(Bytes::copy_from_slice(key.as_bytes()))
                .or_default()
                .push(self.last);
        }
        self.last
    }

    pub(crate) fn leave(&mut self, reader: u64, streams: &[Key], watched: &[Key]) {
        for stream in streams {
            self.unsubscribe(reader, stream);
        }
        for key in watched {
            if let Some(readers) = self.watched.get_mut(key.as_bytes()) {
                readers.retain(|other| *other != reader);
                if readers.is_empty() {
                    self.watched.remove(key.as_bytes());
                }
            }
        }
        self.seats.remove(&reader);
    }

    /// A reader is to be told of a stream from now on, and looks at it at once.
    pub(crate) fn subscribe(&mut self, reader: u64, stream: &Key) {
        self.streams
            .entry(Bytes::copy_from_slice(stream.as_bytes()))
            .or_default()
            .push((reader, Arc::clone(stream)));
        self.look_again(reader, stream);
    }

    pub(crate) fn unsubscribe(&mut self, reader: u64, stream: &Key) {
        if let Some(readers) = self.streams.get_mut(stream.as_bytes()) {
            readers.retain(|(other, _)| *other != reader);
            if readers.is_empty() {
                self.streams.remove(stream.as_bytes());
            }
        }
        if let Some(seat) = self.seats.get_mut(&reader)
            && seat.queued.remove(stream)
        {
            seat.ready.retain(|other| other != stream);
        }
    }

    /// Puts a stream at the end of what a reader looks at.
    pub(crate) fn look_again(&mut self, reader: u64, stream: &Key) {
        if let Some(seat) = self.seats.get_mut(&reader) {
            seat.push(stream);
        }
    }

    /// The stream that a reader looks at next.
    pub(crate) fn next(&mut self, reader: u64) -> Option<Key> {
        let seat = self.seats.get_mut(&reader)?;
        let stream = seat.ready.pop_front()?;
        seat.queued.remove(&stream);
        Some(stream)
    }

    /// How many streams a reader has to look at.
    pub(crate) fn waiting(&self, reader: u64) -> usize {
        self.seats.get(&reader).map_or(0, |seat| seat.ready.len())
    }

    /// Whether a watched key has changed since this was last asked.
    pub(crate) fn take_changed(&mut self, reader: u64) -> bool {
        self.seats
            .get_mut(&reader)
            .is_some_and(|seat| std::mem::take(&mut seat.changed))
    }

    /// Something has happened on a stream.
    pub(crate) fn stirred(&mut self, key: &[u8]) {
        for (reader, stream) in self.streams.get(key).into_iter().flatten() {
            if let Some(seat) = self.seats.get_mut(reader) {
                seat.push(stream);
                seat.wake.notify_one();
            }
        }
    }

    /// The value of a key has changed.
    pub(crate) fn changed(&mut self, key: &[u8]) {
        for reader in self.watched.get(key).into_iter().flatten() {
            if let Some(seat) = self.seats.get_mut(reader) {
                seat.changed = true;
                seat.wake.notify_one();
            }
        }
    }
}
