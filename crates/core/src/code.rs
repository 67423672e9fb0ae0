//! The error codes that leave the process, in one table.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $advice:literal;)*) => {
        /// An error code as it goes on the wire (`_ec`), into logs and into metric labels.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The code's text, which never changes.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }

            /// What whoever meets it can do about it.
            #[must_use]
            pub const fn advice(self) -> &'static str {
                match self { $(Code::$name => $advice,)* }
            }
        }
    };
}

codes! {
    /// The entry is no message: its type says nothing, or a field that it needs is missing or not text.
    Malformed = "RELAY.MALFORMED", "give the entry a type in `t`, a name in `c`, and UTF-8 in every field";
    /// The entry is over the configured size or number of fields.
    TooLarge = "RELAY.TOO_LARGE", "send less, or raise `relay.max_entry_bytes` or `relay.max_fields`";
    /// `_rt` names nothing that is registered.
    TargetNotFound = "RELAY.TARGET_NOT_FOUND", "see `crossway sites` for what is registered";
    /// Source and target are in different environments.
    Environment = "RELAY.ENVIRONMENT", "address the target in the sender's own environment";
    /// A policy rule, or the default, forbids it.
    Denied = "RELAY.DENIED", "see `crossway policy explain` for the rule";
    /// The sender, or the pair, sends more than its rate allows.
    RateLimited = "RELAY.RATE_LIMITED", "wait for `retry_after_ms`, send less at once, or raise `relay.rate`";
    /// The store refused the write to the target.
    Undeliverable = "RELAY.UNDELIVERABLE", "look at the target's stream: is the key a stream, is the store full?";
    /// A command of the daemon that only an administrator may give.
    Forbidden = "RELAY.FORBIDDEN", "name the site in `relay.administrators`";
    /// The parameters of a daemon command can't be read.
    BadParameters = "RELAY.BAD_PARAMETERS", "send the parameters as the command's page describes them";
    /// A registration would take a name that is already another's.
    NameTaken = "RELAY.NAME_TAKEN", "choose another id, or let the owner or an administrator change it";
    /// The site isn't registered.
    SiteUnknown = "RELAY.SITE_UNKNOWN", "register it first";
    /// The registry has as many sites as the configuration allows.
    RegistryFull = "RELAY.REGISTRY_FULL", "deregister what isn't used, or raise `relay.max_sites`";
    /// There is no such direct channel (any more).
    ChannelUnknown = "RELAY.CHANNEL_UNKNOWN", "open another: this one was closed, or nobody used it for its time";
    /// The site has opened as many direct channels as the configuration allows.
    ChannelsFull = "RELAY.CHANNELS_FULL", "close channels that aren't used, or raise `relay.max_channels`";
    /// The store couldn't carry out a command of the daemon.
    Unavailable = "RELAY.UNAVAILABLE", "try again; see `/readyz` for the state of the store";
}

/// Begins every code of the daemon's own.
const OWN: &[u8] = b"RELAY.";

/// Stands before a code of the daemon's own that a service gives as its answer's.
const FOREIGN: &[u8] = b"SERVICE.";

/// A service's code as it is carried: one that the daemon alone may give is marked as the
/// service's, so that an answer is never taken for a refusal.
#[must_use]
pub fn of_service(code: &Bytes) -> Bytes {
    if code.starts_with(OWN) {
        [FOREIGN, code].concat().into()
    } else {
        code.clone()
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a message was refused: a code for programs, a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    /// The code.
    pub code: Code,
    /// What happened to what; never a value of the message.
    pub message: Cow<'static, str>,
    /// After how many milliseconds the same may pass, where that is known.
    pub retry_after_ms: Option<u64>,
}

impl Refusal {
    /// A refusal with a sentence.
    #[must_use]
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal {
            code,
            message: message.into(),
            retry_after_ms: None,
        }
    }

    /// The same refusal, with the time to wait.
    #[must_use]
    pub fn retry_after(self, ms: u64) -> Refusal {
        Refusal {
            retry_after_ms: Some(ms),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_code_has_a_text_of_its_own_and_an_advice() {
        let texts: HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), Code::ALL.len());
        assert!(
            Code::ALL
                .iter()
                .all(|code| code.as_str().starts_with("RELAY.") && !code.advice().is_empty())
        );
    }

    #[test]
    fn the_documented_table_is_the_table() {
        let page = include_str!("../../../docs/codes.md");
        for code in Code::ALL {
            let row = format!("| `{code}` | {} |", code.advice());
            assert!(page.contains(&row), "docs/codes.md lacks the row: {row}");
        }
    }
}
