//! The examples for service authors, in every language that this machine has: against each other,
//! and against what a store and a daemon may do to them.

mod faults;
mod python;
pub(crate) mod speaker;
mod talk;
