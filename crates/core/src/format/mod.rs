//! Formats: what a service's data looks like, how that is recognised, and how one becomes another.
//!
//! A [`Formats`] is the registry; [`Formats::detect`] names the format of data and
//! [`Formats::convert`] goes from one to another by way of the canonical fields. A format is a
//! [`Definition`], those that ship lie in `formats/`. Values that no transform is given for stay
//! the text that they came as (`json`), so that no digit is lost and little is paid for.

mod binary;
mod cbor;
mod codec;
mod date;
mod decimal;
mod definition;
mod detect;
mod error;
mod fault;
mod json;
mod mapping;
mod msgpack;
mod node;
mod registry;
mod resp;
mod schema;
mod transform;
mod translate;
mod yaml;

pub use definition::Definition;
pub use detect::Detection;
pub use error::{ConvertError, DefinitionError, FormatError};
pub use registry::{Format, Formats};

#[cfg(test)]
mod tests;
