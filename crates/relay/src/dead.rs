//! What could not be delivered, kept with its reason.

use crossway_core::address::SiteStream;
use crossway_core::code::Refusal;
use crossway_core::entry::{Entry, Fields};
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
