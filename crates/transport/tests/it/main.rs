//! Promises of the stores, kept against real servers.

mod parity;
mod wire;
