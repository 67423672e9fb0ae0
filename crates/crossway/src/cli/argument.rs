//! Arguments that may stand for a file (`@FILE`) or for standard input (`-`).

use std::fmt::Display;
use std::io;
use std::path::Path;

use super::CliError;
use crate::regular;

/// More than any message or rule set has.
const MAX_BYTES: u64 = 64 << 20;

/// The text that an argument gives; `what` names it in errors.
pub(super) fn text(what: &str, argument: &str) -> Result<String, CliError> {
    let (from, read) = match argument.strip_prefix('@') {
        Some(path) => (path, regular::read(Path::new(path), MAX_BYTES)),
        None if argument == "-" => ("standard input", regular::bounded(io::stdin(), MAX_BYTES)),
        None => return Ok(argument.to_owned()),
    };
    let wrong =
        |error: &dyn Display| CliError::Input(format!("{what}: {from} can't be read: {error}"));
    let bytes = read.map_err(|error| wrong(&error))?;
    String::from_utf8(bytes).map_err(|error| wrong(&error.utf8_error()))
}
