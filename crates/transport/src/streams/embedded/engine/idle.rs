//! For how long a stream hasn't been used.

use std::time::Duration;

use super::{Engine, Refusal};

impl Engine {
    /// Notes that a key is used.
    pub(crate) fn note_use(&mut self, key: &[u8], now: u64) {
        if let Some(slot) = self.keys.get_mut(key) {
            slot.used_at = Some(now);
        }
    }

    /// For how long a stream hasn't been used; `None` where there is none. One of which nothing is
    /// known since the start counts as used now.
    pub(crate) fn unused(&mut self, key: &[u8], now: u64) -> Result<Option<Duration>, Refusal> {
        let Some(stream) = self.stream(key, now)? else {
            return Ok(None);
        };
        let written = stream.last_id.ms.min(now);
        let used = self
            .keys
            .get_mut(key)
            .map(|slot| *slot.used_at.get_or_insert(now));
        let last = used.unwrap_or(now).max(written);
        Ok(Some(Duration::from_millis(now.saturating_sub(last))))
    }
}
