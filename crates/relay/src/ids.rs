//! Ids that nobody can guess.

use std::fmt::Write as _;

/// Begins every delivery id, so that an answer to one is told from any other answer by its look.
const DELIVERY: &str = "d.";

/// Hex digits of 128 bits.
const DIGITS: usize = 32;

/// Draws delivery ids. Random bytes are taken from the system for many at a time.
pub(crate) struct DeliveryIds {
    pool: [u8; 16 * 64],
    used: usize,
}

impl DeliveryIds {
    pub(crate) fn new() -> DeliveryIds {
        let pool = [0; 16 * 64];
        DeliveryIds {
            used: pool.len(),
            pool,
        }
    }

    /// A new one.
    ///
    /// # Errors
    /// The system has no random bytes to give; a guessable id is never used instead.
    pub(crate) fn draw(&mut self) -> Result<String, getrandom::Error> {
        if self.used >= self.pool.len() {
            getrandom::fill(&mut self.pool)?;
            self.used = 0;
        }
        let mut id = String::with_capacity(DELIVERY.len() + DIGITS);
        id.push_str(DELIVERY);
        for byte in self.pool.iter().skip(self.used).take(16) {
            let _ = write!(id, "{byte:02x}");
        }
        self.used += 16;
        Ok(id)
    }
}

/// Whether a text looks like a delivery id.
pub(crate) fn is_delivery(text: &str) -> bool {
    text.strip_prefix(DELIVERY).is_some_and(|rest| {
        rest.len() == DIGITS
            && rest
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// A name that no other process draws; not a secret.
#[must_use]
pub fn random_name() -> String {
    let mut bytes = [0; 8];
    if getrandom::fill(&mut bytes).is_err() {
        // Only has to differ from what another process drew, which its own number and time do too.
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        bytes = (now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 32)).to_be_bytes();
    }
    bytes.iter().fold(String::new(), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn delivery_ids_are_new_each_time_and_known_by_their_look() {
        let mut ids = DeliveryIds::new();
        let drawn: HashSet<String> = (0..1000).map(|_| ids.draw().unwrap()).collect();
        assert_eq!(drawn.len(), 1000);
        assert!(drawn.iter().all(|id| is_delivery(id)));
        for other in [
            "",
            "d.",
            "d.0",
            "cmd-001",
            "d.0123456789ABCDEF0123456789abcdef",
            "d.0123456789abcdef0123456789abcdef0",
        ] {
            assert!(!is_delivery(other), "{other}");
        }
    }
}
