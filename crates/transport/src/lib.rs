//! placeholder
pub mod streams;
