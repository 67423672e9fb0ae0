//! Words and rules of a crossing.
//!
//! This is the room where everything can be read, tested and fuzzed alone: nothing here does
//! I/O, reads a clock, draws a random number or knows an async runtime; what is needed of those
//! comes in as an argument. Strings end at its border: a [`address::SiteId`] or an
//! [`address::SiteStream`] can't hold a wrong value.
//!
//! A message is an [`entry::Entry`], read as a [`message::Message`]; it is admitted by the one
//! list of [`guard`]s, among them the [`policy`]; a refusal carries a [`code::Code`]; what leaves
//! over another plane goes through [`plane::Plane`]. What services write and read is a [`mod@format`];
//! what a crossing leaves for whoever follows it is a span of a [`trace`].

pub mod address;
pub mod code;
pub mod entry;
pub mod format;
pub mod guard;
pub mod message;
pub mod plane;
pub mod policy;
pub mod rate;
pub mod trace;
