//! Which streams are read together.
//!
//! A read that waits on many streams costs the store time for each of them, a quarter to half a
//! microsecond, whichever of them has something: with ten thousand it is five milliseconds for
//! every batch. So streams that have been quiet wait in lanes of their own, which cost nothing
//! until one of theirs has something; it moves to the first lane then, among the busy ones, and
//! one of those that has been quiet for longest takes its place.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::lane::Lane;
use crate::streams::Key;

/// Streams in the first lane; a read of so many costs the store about 20 µs.
const BUSY: usize = 64;
/// Streams in each other lane: the first entry after a quiet time costs the store about 50 µs, and
/// ten thousand streams take eighty connections.
const QUIET: usize = 128;
/// How long a stream must have had nothing to leave the first lane for another.
const QUIET_FOR: Duration = Duration::from_secs(5);

/// Replaces the streams. Those that stay keep their lane and their place. New ones join the first
/// lane where all have room in it, else the first other one that does.
pub(crate) fn assign(lanes: &mut Vec<Lane>, streams: Vec<Key>) {
    let wanted: HashSet<&Key> = streams.iter().collect();
    let mut sets: Vec<Vec<Key>> = lanes
        .iter()
        .map(|lane| {
            lane.cursors
                .all()
                .filter(|key| wanted.contains(key))
                .cloned()
                .collect()
        })
        .collect();
    let known: HashSet<Key> = sets.iter().flatten().cloned().collect();
    // Of many, most are quiet: the first lane is left to those that turn out not to be.
    let mut at = usize::from(wanted.len() > BUSY);
    sets.resize_with(sets.len().max(at + 1), Vec::new);
    for key in streams.into_iter().filter(|key| !known.contains(key)) {
        while sets
            .get(at)
            .is_some_and(|set| set.len() >= if at == 0 { BUSY } else { QUIET })
        {
            at += 1;
        }
        match sets.get_mut(at) {
            Some(set) => set.push(key),
            None => sets.push(vec![key]),
        }
    }
    lanes.resize_with(sets.len().max(1), Lane::default);
    for (lane, set) in lanes.iter_mut().zip(sets) {
        lane.reassigned |= lane.cursors.assign(set);
    }
}

/// The streams of a quiet lane that had something, `keys`, change places with streams of the first
/// lane that had nothing for long, or take free places there. Neither lane has a read in flight.
pub(crate) fn promote(busy: &mut Lane, quiet: &mut Lane, keys: &[Key], now: Instant) {
    let mut free = BUSY.saturating_sub(busy.cursors.all().count());
    if free < keys.len() {
        for key in busy.cursors.quiet_since(now, QUIET_FOR, keys.len() - free) {
            if let Some(stream) = busy.cursors.release(&key) {
                quiet.cursors.adopt(stream);
                free += 1;
            }
        }
    }
    for key in keys.iter().take(free) {
        if let Some(stream) = quiet.cursors.release(key) {
            busy.cursors.adopt(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(numbers: std::ops::Range<usize>) -> Vec<Key> {
        numbers
            .map(|number| Key::from(format!("s{number}")))
            .collect()
    }

    fn sizes(lanes: &[Lane]) -> Vec<usize> {
        lanes
            .iter()
            .map(|lane| lane.cursors.all().count())
            .collect()
    }

    fn at_new(lane: &mut Lane, now: Instant) {
        for key in lane.cursors.all().cloned().collect::<Vec<_>>() {
            lane.cursors.has_group(&key, false);
            lane.cursors.took(key.as_bytes(), &[], 10, u64::MAX, now);
        }
    }

    /// Lanes for so many streams, all of them past what was pending.
    fn laid_out(count: usize, now: Instant) -> Vec<Lane> {
        let mut lanes = vec![Lane::default()];
        assign(&mut lanes, keys(0..count));
        for lane in &mut lanes {
            at_new(lane, now);
        }
        lanes
    }

    fn reads(lane: &Lane, key: &Key) -> bool {
        lane.cursors.all().any(|other| other == key)
    }

    #[test]
    fn few_streams_share_one_lane_and_many_are_spread() {
        let mut lanes = vec![Lane::default()];
        assign(&mut lanes, keys(0..BUSY));
        assert_eq!(sizes(&lanes), [BUSY]);
        let many = BUSY + 2 * QUIET + 5;
        assign(&mut lanes, keys(0..many));
        assert_eq!(sizes(&lanes), [BUSY, QUIET, QUIET, 5]);
        let all: HashSet<Key> = lanes
            .iter()
            .flat_map(|lane| lane.cursors.all().cloned())
            .collect();
        assert_eq!(all.len(), many);
        for lane in &mut lanes {
            lane.reassigned = false;
        }
        // Only the lanes that change are read anew.
        assign(&mut lanes, keys(0..many + 1));
        let changed: Vec<bool> = lanes.iter().map(|lane| lane.reassigned).collect();
        assert_eq!(changed, [false, false, false, true]);
        assign(&mut lanes, keys(0..1));
        assert_eq!(sizes(&lanes), [1, 0, 0, 0]);
    }

    #[test]
    fn of_many_streams_the_first_lane_is_left_to_those_that_have_something() {
        let now = Instant::now();
        let mut lanes = laid_out(BUSY + 1, now);
        assert_eq!(sizes(&lanes), [0, BUSY + 1]);
        let (busy, quiet) = lanes.split_at_mut(1);
        let moved = keys(3..5);
        promote(&mut busy[0], &mut quiet[0], &moved, now);
        assert!(
            moved
                .iter()
                .all(|key| reads(&busy[0], key) && !reads(&quiet[0], key))
        );
        assert_eq!(sizes(&lanes), [2, BUSY - 1]);
    }

    #[test]
    fn a_stream_that_has_something_changes_places_with_a_quiet_one() {
        let now = Instant::now();
        let mut lanes = laid_out(BUSY, now);
        assign(&mut lanes, keys(0..BUSY + 5));
        at_new(&mut lanes[1], now);
        let (busy, quiet) = lanes.split_at_mut(1);
        let moved = keys(BUSY..BUSY + 2);
        promote(&mut busy[0], &mut quiet[0], &moved, now);
        assert!(
            !moved.iter().any(|key| reads(&busy[0], key)),
            "nobody has been quiet for long"
        );
        promote(&mut busy[0], &mut quiet[0], &moved, now + QUIET_FOR);
        assert!(moved.iter().all(|key| reads(&busy[0], key)));
        assert_eq!(sizes(&lanes), [BUSY, 5]);
    }

    #[test]
    fn a_stream_with_pending_entries_stays_where_it_is() {
        let now = Instant::now();
        let mut lanes = vec![Lane::default()];
        assign(&mut lanes, keys(0..BUSY + 1));
        let (busy, quiet) = lanes.split_at_mut(1);
        promote(&mut busy[0], &mut quiet[0], &keys(0..1), now + QUIET_FOR);
        assert!(reads(&quiet[0], &keys(0..1)[0]));
    }
}
