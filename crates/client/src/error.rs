//! What can go wrong, told apart by what the caller may do about it.

use crossway_core::address::NameError;

/// A [`Client`](crate::Client) couldn't be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A name holds something that names can't hold.
    #[error("{what} {name:?}: {reason}")]
    Name {
        /// What the name was for.
        what: &'static str,
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: NameError,
    },
    /// The URL can't be used. It isn't repeated here, because it may hold a password.
    #[error("the store's URL can't be used: {reason}; it looks like redis://HOST:PORT")]
    Url {
        /// What is wrong with it.
        reason: String,
    },
    /// The store couldn't be reached, or refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What went wrong between this program and the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No answer came: the connection couldn't be opened, broke, or stayed silent.
    #[error(
        "the store at {at} doesn't answer: {reason}; check that it runs and that the URL is right"
    )]
    Unreachable {
        /// Where the store was looked for, without any secret.
        at: String,
        /// What the system said.
        reason: String,
    },
    /// The store answered with an error.
    #[error("the store at {at} refused: {reason}")]
    Refused {
        /// Where the store is, without any secret.
        at: String,
        /// The store's own words.
        reason: String,
    },
}

/// Why a call has no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The daemon didn't let it through. The target never saw it.
    #[error("refused with {code}: {message}")]
    Refused {
        /// The error code, such as `RELAY.DENIED`.
        code: String,
        /// The daemon's reason.
        message: String,
    },
    /// The target got it, and answered that it failed.
    #[error("the target failed{}: {message}", code.as_deref().map(|code| format!(" with {code}")).unwrap_or_default())]
    Failed {
        /// The target's own code, where it gave one.
        code: Option<String>,
        /// The target's reason.
        message: String,
    },
    /// Time ran out.
    #[error("{}", if *relayed { "the target got it, but didn't answer in time" } else { "no daemon took it in time; check that one runs on this store" })]
    Timeout {
        /// Whether the daemon had said that the target has it. If so, it may still be carried out.
        relayed: bool,
    },
    /// The connection broke while the command was being written, and nothing was heard of it
    /// since: it may or may not have been carried out. It is never sent again by itself.
    #[error("the connection broke while sending, so it may or may not have been carried out: {0}")]
    Unknown(StoreError),
    /// The store couldn't be reached or refused the command; it was certainly not sent.
    #[error(transparent)]
    Store(StoreError),
    /// Too many calls of this client are waiting already, and none ended in time; it was not sent.
    #[error("{limit} calls are waiting for their reply already; wait for some, or raise the limit")]
    Busy {
        /// The most calls that may wait at once.
        limit: usize,
    },
    /// The target or the command isn't something that can be sent.
    #[error("{what} can't be sent: {reason}")]
    Input {
        /// Which argument.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
}

impl CallError {
    /// The code that came over the wire, where there is one.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            CallError::Refused { code, .. } => Some(code),
            CallError::Failed { code, .. } => code.as_deref(),
            _ => None,
        }
    }
}
