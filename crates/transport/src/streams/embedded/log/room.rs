//! Whether the disk has room for what is to be written.
//!
//! A full disk still takes what fits into the last block of a file. So that a small record doesn't
//! hide that larger ones are refused, room is believed in again when as large a one was taken, or
//! when none has been refused for a while.

use std::time::{Duration, Instant};

/// How long a refusal speaks for the disk: a few rounds of whatever is written every second.
const LATELY: Duration = Duration::from_secs(5);

/// What is known of the room on the disk.
#[derive(Debug, Default)]
pub(crate) struct Room(Option<Refused>);

#[derive(Debug)]
struct Refused {
    at: Instant,
    /// Bytes of the record.
    len: usize,
    reason: String,
}

impl Room {
    /// A record of `len` bytes was refused.
    pub(crate) fn refused(&mut self, len: usize, reason: String, now: Instant) {
        self.0 = Some(Refused {
            at: now,
            len,
            reason,
        });
    }

    /// A record of `len` bytes was taken.
    pub(crate) fn taken(&mut self, len: usize) {
        self.0.take_if(|refused| len >= refused.len);
    }

    /// Why there is none, if there isn't.
    pub(crate) fn lacks(&self, now: Instant) -> Option<&str> {
        self.0
            .as_ref()
            .filter(|refused| now.saturating_duration_since(refused.at) < LATELY)
            .map(|refused| refused.reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_again_when_as_much_was_taken_or_nothing_was_refused_for_a_while() {
        let start = Instant::now();
        let mut room = Room::default();
        assert_eq!(room.lacks(start), None);
        room.refused(100, "full".to_owned(), start);
        room.taken(99);
        assert_eq!(room.lacks(start + LATELY / 2), Some("full"));
        assert_eq!(room.lacks(start + LATELY), None);
        room.taken(100);
        assert_eq!(room.lacks(start), None);
    }
}
