//! Direct channels: a stream that two sites share, which the daemon makes and then leaves to them.
//!
//! [`channel`] says what one is, [`table`] opens, closes and lists them on the store, [`access`] lets
//! the two sites' users at them, and [`sweep`] closes those that nobody uses.
//!
//! What lies on the store is written in an order that a crash at any point leaves sound: the stream
//! is there before anything names it, and the metadata goes last, so that whoever runs the same
//! command again finds what is left to do.

mod access;
mod channel;
pub(crate) mod sweep;
mod table;

pub(crate) use channel::MAX_TTL;
pub use channel::{Channel, ChannelFault, Mode};
pub(crate) use table::Channels;
