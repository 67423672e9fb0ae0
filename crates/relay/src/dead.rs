//! What could not be delivered, kept with its reason.

use crossway_core::address::SiteStream;
use crossway_core::code::Refusal;
use crossway_core::entry::{Entry, EntryId, Fields};
use crossway_transport::streams::Append;

use crate::options::RelayOptions;

/// Begins the names of the original entry's fields in a dead letter.
const ORIGINAL: &str = "f:";

/// An entry for the dead stream.
pub(crate) struct Dead<'a> {
    pub(crate) stream: &'a SiteStream,
    pub(crate) entry: &'a Entry,
    pub(crate) refusal: &'a Refusal,
    pub(crate) attempts: u32,
    /// Whether all of the entry is here; otherwise it is to be found in its stream.
    pub(crate) whole: bool,
}

impl Dead<'_> {
    /// The entry as it is kept: why, from where, and its fields under `f:`.
    pub(crate) fn append(&self, options: &RelayOptions, now_ms: u64) -> Append {
        let mut fields = Fields::with_capacity(self.entry.fields.len() + 8);
        fields.push("code", self.refusal.code.as_str());
        fields.push("reason", self.refusal.message.to_string());
        fields.push("stream", self.stream.key.to_string());
        fields.push("entry", self.entry.id.to_string());
        fields.push("attempts", self.attempts.to_string());
        fields.push("at", now_ms.to_string());
        fields.push("whole", if self.whole { "true" } else { "false" });
        for (name, value) in &self.entry.fields {
            fields.push([ORIGINAL.as_bytes(), name].concat(), value.clone());
        }
        Append {
            stream: options.keyspace.dead(&self.stream.environment),
            fields,
        }
    }
}

/// A dead letter, as it lies in the dead stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The code that its sender was told.
    pub code: String,
    /// Why it couldn't be delivered.
    pub reason: String,
    /// The stream that the original was read from.
    pub stream: String,
    /// The original's id in that stream.
    pub entry: EntryId,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was given up, in milliseconds since the epoch.
    pub at_ms: u64,
    /// Whether `original` is all of it; otherwise the rest is only in its stream.
    pub whole: bool,
    /// The fields of the original.
    pub original: Fields,
}

/// An entry of the dead stream that is no dead letter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is no dead letter of a relay: its field {field} is missing or can't be read")]
pub struct DeadLetterError {
    field: &'static str,
}

impl DeadLetter {
    /// Reads an entry of a dead stream.
    ///
    /// # Errors
    /// [`DeadLetterError`] where a field is missing, or isn't what a relay writes.
    pub fn read(fields: &Fields) -> Result<DeadLetter, DeadLetterError> {
        let fault = |field| DeadLetterError { field };
        let text = |field: &'static str| {
            let value = fields.get(field.as_bytes()).ok_or(fault(field))?;
            std::str::from_utf8(value).map_err(|_| fault(field))
        };
        let original = fields.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix(ORIGINAL.as_bytes())?;
            Some((name.to_vec(), value.clone()))
        });
        Ok(DeadLetter {
            code: text("code")?.to_owned(),
            reason: text("reason")?.to_owned(),
            stream: text("stream")?.to_owned(),
            entry: text("entry")?.parse().map_err(|_| fault("entry"))?,
            attempts: text("attempts")?.parse().map_err(|_| fault("attempts"))?,
            at_ms: text("at")?.parse().map_err(|_| fault("at"))?,
            whole: match text("whole")? {
                "true" => true,
                "false" => false,
                _ => return Err(fault("whole")),
            },
            original: original.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossway_core::address::{Environment, Keyspace, SiteId, Spelling};
    use crossway_core::code::Code;

    #[test]
    fn a_letter_is_read_back_as_it_was_written() {
        let keyspace = Keyspace::new("gnode", "gnode", Spelling::Bare, &[]).unwrap();
        let options = RelayOptions::new(keyspace.clone(), "n", "m");
        let stream = keyspace.unified(
            &SiteId::parse("a").unwrap(),
            &Environment::parse("testing").unwrap(),
        );
        let fields: Fields = [("code", "of the original"), ("n", "1"), ("n", "2")]
            .into_iter()
            .collect();
        let entry = Entry {
            id: EntryId::new(7, 3),
            fields,
        };
        let refusal = Refusal::new(Code::Undeliverable, "why");
        let append = Dead {
            stream: &stream,
            entry: &entry,
            refusal: &refusal,
            attempts: 5,
            whole: true,
        }
        .append(&options, 99);
        let letter = DeadLetter::read(&append.fields).unwrap();
        assert_eq!(
            letter,
            DeadLetter {
                code: "RELAY.UNDELIVERABLE".to_owned(),
                reason: "why".to_owned(),
                stream: stream.key.to_string(),
                entry: entry.id,
                attempts: 5,
                at_ms: 99,
                whole: true,
                original: entry.fields,
            }
        );
    }

    #[test]
    fn what_a_relay_has_not_written_is_no_letter() {
        let fields: Fields = [("code", "x"), ("reason", "y")].into_iter().collect();
        assert_eq!(
            DeadLetter::read(&fields),
            Err(DeadLetterError { field: "stream" })
        );
    }
}
