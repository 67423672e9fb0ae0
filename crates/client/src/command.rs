//! What a service is asked, and why it couldn't.

use serde::de::DeserializeOwned;

use crate::entry::text;
use crate::store::Raw;

/// A command that came to this site.
#[derive(Clone)]
pub struct Command {
    id: String,
    name: String,
    params: String,
    source_site: String,
    source_node: String,
    entity: String,
    traceparent: String,
    event: bool,
}

impl Command {
    pub(crate) fn from_raw(raw: &Raw, event: bool) -> Command {
        let id = text(raw, &["i", "id", "request_id"]);
        Command {
            id: if id.is_empty() { raw.id.clone() } else { id },
            name: text(raw, &["c", "cmd", "command", "command_name"]),
            params: text(raw, &["p", "params", "parameters"]),
            source_site: text(raw, &["ss", "source_site", "service_id", "site_id", "st"]),
            source_node: text(raw, &["sn", "source_node", "node_id", "n"]),
            entity: text(raw, &["dn", "dest_node"]),
            traceparent: text(raw, &["tp", "traceparent"]),
            event,
        }
    }

    /// One command of the batch that this is. Its id is the batch's with its place.
    pub(crate) fn item(&self, at: usize, name: String, params: &str) -> Command {
        Command {
            id: format!("{}.{at}", self.id),
            name,
            params: params.to_owned(),
            ..self.clone()
        }
    }

    /// Its id, the same each time that it is delivered.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What is to be done.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parameters as they were written: JSON text, usually.
    #[must_use]
    pub fn params_text(&self) -> &str {
        &self.params
    }

    /// The parameters as a value of the program.
    ///
    /// # Errors
    /// A [`Failure`] that says what didn't fit, ready to be answered.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(&self.params)
            .map_err(|error| Failure::new("INVALID_PARAMS", error.to_string()))
    }

    /// The site that sent it, as the daemon established it.
    #[must_use]
    pub fn source_site(&self) -> &str {
        &self.source_site
    }

    /// The process that sent it, as it called itself.
    #[must_use]
    pub fn source_node(&self) -> &str {
        &self.source_node
    }

    /// The entity of this site that it is for; empty where it is for the site itself.
    #[must_use]
    pub fn entity(&self) -> &str {
        &self.entity
    }

    /// The W3C trace context; empty where there is none.
    #[must_use]
    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    /// Whether nobody waits for an answer.
    #[must_use]
    pub fn is_event(&self) -> bool {
        self.event
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("source_site", &self.source_site)
            .finish_non_exhaustive()
    }
}

/// Why a command couldn't be carried out, as it is told to the sender.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    /// A word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

impl Failure {
    /// A failure.
    #[must_use]
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure {
            code: code.into(),
            message: message.into(),
        }
    }
}
