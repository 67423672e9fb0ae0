//! Ids that nobody can guess.

use std::fmt::Write as _;

use crossway_core::entry::EntryId;
use crossway_transport::streams::{StoreError, Streams};
use ring::hmac;

/// Field of the members' hash with the secret from which ids are derived.
const SECRET_FIELD: &str = "secret";

/// Begins every delivery id, so that an answer to one is told from any other answer by its look.
const DELIVERY: &str = "d.";

/// Begins every direct channel's id.
const CHANNEL: &str = "dc_";

/// Hex digits of 128 bits.
const DIGITS: usize = 32;

/// Gives delivery ids: drawn at random, many from the system at a time, or where a delivery may be
/// repeated, derived by a secret from the entry that is delivered.
pub(crate) struct DeliveryIds {
    pool: [u8; 16 * 64],
    used: usize,
    secret: Option<hmac::Key>,
}

impl DeliveryIds {
    pub(crate) fn new() -> DeliveryIds {
        let pool = [0; 16 * 64];
        DeliveryIds {
            used: pool.len(),
            pool,
            secret: None,
        }
    }

    /// From now on the same entry is given the same id, by whoever knows the secret.
    pub(crate) fn repeat(&mut self, secret: &str) {
        self.secret = Some(hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()));
    }

    /// Whether the same entry is given the same id.
    pub(crate) fn repeats(&self) -> bool {
        self.secret.is_some()
    }

    /// The id for the delivery of an entry.
    ///
    /// # Errors
    /// The system has no random bytes to give; a guessable id is never used instead.
    pub(crate) fn draw(
        &mut self,
        stream: &str,
        entry: EntryId,
    ) -> Result<String, getrandom::Error> {
        if let Some(secret) = &self.secret {
            // No key holds a line break where it matters: an entry's id is digits and a hyphen.
            let name = format!("{entry}\n{stream}");
            return Ok(written(hmac::sign(secret, name.as_bytes()).as_ref()));
        }
        if self.used >= self.pool.len() {
            getrandom::fill(&mut self.pool)?;
            self.used = 0;
        }
        let id = written(self.pool.get(self.used..).unwrap_or_default());
        self.used += 16;
        Ok(id)
    }
}

/// A delivery id of the first 16 of these bytes.
fn written(bytes: &[u8]) -> String {
    let mut id = String::with_capacity(DELIVERY.len() + DIGITS);
    id.push_str(DELIVERY);
    digits(&mut id, bytes);
    id
}

/// Adds the first 16 bytes in hex.
fn digits(id: &mut String, bytes: &[u8]) {
    for byte in bytes.iter().take(16) {
        let _ = write!(id, "{byte:02x}");
    }
}

fn are_digits(text: &str) -> bool {
    text.len() == DIGITS
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The id of the direct channel that the `item`th command of an entry opens: the same however often
/// the entry is handled, and nobody's to guess who doesn't know the secret.
pub(crate) fn channel(secret: &str, stream: &str, entry: EntryId, item: usize) -> String {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let name = format!("channel\n{entry}\n{item}\n{stream}");
    let mut id = CHANNEL.to_owned();
    digits(&mut id, hmac::sign(&secret, name.as_bytes()).as_ref());
    id
}

/// Whether a text looks like a direct channel's id.
pub(crate) fn is_channel(text: &str) -> bool {
    text.strip_prefix(CHANNEL).is_some_and(are_digits)
}

/// The secret that all daemons of a store share: it lies in the members' hash `key`, and whoever is
/// first makes it.
pub(crate) async fn shared_secret(store: &dyn Streams, key: &str) -> Result<String, StoreError> {
    if let Some(secret) = store.hash_get(key, SECRET_FIELD).await? {
        return Ok(secret);
    }
    if let Ok(fresh) = secret() {
        store.hash_add(key, SECRET_FIELD, &fresh).await?;
    }
    let there = store.hash_get(key, SECRET_FIELD).await?;
    there.ok_or_else(|| StoreError::Refused {
        command: "HSETNX",
        key: key.to_owned(),
        reason: "LOADING the secret for ids isn't there".to_owned(),
    })
}

/// A secret of 256 bits, as text.
///
/// # Errors
/// The system has no random bytes to give.
fn secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Whether a text looks like a delivery id.
pub(crate) fn is_delivery(text: &str) -> bool {
    text.strip_prefix(DELIVERY).is_some_and(are_digits)
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
    fn with_a_secret_an_entry_is_always_given_the_same_id_and_no_other_is() {
        let id = |secret: &str, stream: &str, seq| {
            let mut ids = DeliveryIds::new();
            ids.repeat(secret);
            ids.draw(stream, EntryId::new(1, seq)).unwrap()
        };
        let first = id("s", "a", 1);
        assert!(is_delivery(&first));
        assert_eq!(id("s", "a", 1), first);
        for other in [id("s", "a", 2), id("s", "b", 1), id("t", "a", 1)] {
            assert_ne!(other, first);
        }
    }

    #[test]
    fn a_channel_has_one_id_however_often_its_command_is_run_and_no_other_has_it() {
        let id = |secret, stream, seq, item| channel(secret, stream, EntryId::new(1, seq), item);
        let first = id("s", "a", 1, 0);
        assert!(is_channel(&first) && !is_delivery(&first), "{first}");
        assert_eq!(id("s", "a", 1, 0), first);
        let others = [
            id("t", "a", 1, 0),
            id("s", "b", 1, 0),
            id("s", "a", 2, 0),
            id("s", "a", 1, 1),
        ];
        assert!(!others.contains(&first));
        for other in [
            "",
            "dc_",
            "dc_abc123",
            "dc_0123456789ABCDEF0123456789ABCDEF",
            "index",
        ] {
            assert!(!is_channel(other), "{other}");
        }
    }

    #[test]
    fn delivery_ids_are_new_each_time_and_known_by_their_look() {
        let mut ids = DeliveryIds::new();
        let drawn: HashSet<String> = (0..1000)
            .map(|_| ids.draw("a", EntryId::ZERO).unwrap())
            .collect();
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
