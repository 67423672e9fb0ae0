//! placeholder
pub mod entry;
