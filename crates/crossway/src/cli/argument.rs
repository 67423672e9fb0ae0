//! Arguments that may stand for a file (`@FILE`) or for standard input (`-`).

use std::io;
use std::path::Path;

use super::CliError;
use crate::regular;

/// More than any message or rule set has.
const MAX_BYTES: u64 = 64 << 20;

/// The text that an argument gives; `what` names it in errors.
pub(super) fn text(what: &str, argument: &str) -> Result<String, CliError> {
    String::from_utf8(bytes(what, argument)?).map_err(|error| {
        let from = from(argument);
        CliError::Input(format!(
            "{what}: {from} can't be read: {}",
            error.utf8_error()
        ))
    })
}

/// The bytes that an argument gives; `what` names them in errors.
pub(super) fn bytes(what: &str, argument: &str) -> Result<Vec<u8>, CliError> {
    let read = match argument.strip_prefix('@') {
        Some(path) => regular::read(Path::new(path), MAX_BYTES),
        None if argument == "-" => regular::bounded(io::stdin(), MAX_BYTES),
        None => return Ok(argument.as_bytes().to_vec()),
    };
    read.map_err(|error| {
        let from = from(argument);
        CliError::Input(format!("{what}: {from} can't be read: {error}"))
    })
}

fn from(argument: &str) -> &str {
    argument.strip_prefix('@').unwrap_or("standard input")
}
