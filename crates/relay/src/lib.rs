//! The relay plane: commands between services that must not know each other's keys.
//!
//! A service writes a command with a target into its own stream; a [`Relay`] reads it, hands it
//! over to the target's stream, tells the sender, and brings the answer home. It knows the words
//! of `crossway-core` and the `Streams` port of `crossway-transport`, and neither the store that
//! stands behind the port nor any other plane.
//!
//! The crossing of one entry is decided in `crossing` without I/O and carried out in `reader`, a
//! task that owns one reader of the store; `judge` makes the
//! look-ups in between, `settling` hands over. `reply` says which answers are carried, `commands`
//! what the daemon itself answers, `directory` holds what is known of sites and rules, `refresh` keeps
//! it current, `membership` shares the streams with other daemons, `traces` makes a crossing a span,
//! `relay` owns all tasks.

mod acl;
mod answers;
mod batch;
mod channels;
mod commands;
mod counters;
mod crossing;
mod dead;
mod directory;
mod discovery;
mod ids;
mod judge;
mod limiter;
mod manifest;
mod membership;
mod options;
mod reader;
mod refresh;
mod registry;
mod relay;
mod reply;
mod settling;
mod telemetry;
mod traces;
mod translation;
mod trimming;

pub use acl::{daemon_rules, site_rules, user_of};
pub use channels::{Channel, ChannelFault, Mode};
pub use counters::Counters;
pub use dead::{DeadLetter, DeadLetterError};
pub use ids::random_name;
pub use limiter::RateLimits;
pub use manifest::{Manifest, Registration, RegistrationError, StoredEntity, StoredSite};
pub use options::{Discovery, RelayOptions};
pub use relay::{Readiness, Relay, RelayError};
pub use traces::Traces;
