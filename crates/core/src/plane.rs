//! How planes are joined: an envelope is handed to whichever plane its address belongs to.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use crate::address::{ForeignAddress, SiteId};
use crate::code::Refusal;

/// A message between two planes, in the words that all of them share.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// Unguessable, one for each delivery; the receiving side drops a copy by it.
    pub delivery: Bytes,
    /// Who sends it.
    pub source: SiteId,
    /// What is to be done.
    pub command: String,
    /// With what: text in the sender's format.
    pub params: Bytes,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// When nobody waits any more, milliseconds since the epoch.
    pub deadline_ms: u64,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A result, JSON text.
    Result(Bytes),
    /// The other side failed, in its own words.
    Failure {
        /// Its code, where it gave one.
        code: Option<String>,
        /// Its sentence.
        message: String,
    },
}

/// A delivery that is under way.
pub type Delivery<'a> = Pin<Box<dyn Future<Output = Result<Answer, Refusal>> + Send + 'a>>;

/// A plane, as the others see it.
pub trait Plane: Send + Sync {
    /// Its name, for logs and metrics.
    fn name(&self) -> &'static str;

    /// Whether an address is one of its own.
    fn carries(&self, address: &ForeignAddress) -> bool;

    /// Delivers an envelope and waits for what comes back, no longer than its deadline.
    fn deliver<'a>(&'a self, envelope: Envelope, to: &'a ForeignAddress) -> Delivery<'a>;
}
