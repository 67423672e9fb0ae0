//! Going through all keys in portions.
//!
//! A cursor is the number of the last key that was looked at, and keys are numbered in the order
//! they were made; so a key that is there during the whole scan is given exactly once.

use bytes::Bytes;

use super::{Engine, glob};

impl Engine {
    /// Looks at `count` keys after `cursor` and gives those that match, with the next cursor
    /// (0 when all have been looked at).
    pub(crate) fn scan(
        &self,
        cursor: u64,
        count: usize,
        pattern: Option<&[u8]>,
        kind: Option<&str>,
        now: u64,
    ) -> (u64, Vec<Bytes>) {
        let Some(from) = cursor.checked_add(1) else {
            return (0, Vec::new());
        };
        let mut found = Vec::new();
        let mut rest = self.by_number.range(from..);
        let mut last = 0;
        for (number, key) in rest.by_ref().take(count) {
            last = *number;
            let Some(value) = self.value(key, now) else {
                continue;
            };
            if kind.is_none_or(|kind| kind.eq_ignore_ascii_case(value.kind()))
                && pattern.is_none_or(|pattern| glob::matches(pattern, key))
            {
                found.push(key.clone());
            }
        }
        (if rest.next().is_some() { last } else { 0 }, found)
    }

    /// Keys that have expired, at most `most`.
    pub(crate) fn expired(&self, now: u64, most: usize) -> Vec<Bytes> {
        self.expiries
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(most)
            .filter_map(|(_, number)| self.by_number.get(number).cloned())
            .collect()
    }
}
