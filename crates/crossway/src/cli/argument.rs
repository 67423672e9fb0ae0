//! Arguments that may stand for a file (`@FILE`) or for standard input (`-`).

use std::fs::File;
use std::io::{self, Read};

use super::CliError;

/// More than any message or rule set has.
const MAX_BYTES: u64 = 64 << 20;

/// The text that an argument gives; `what` names it in errors.
pub(super) fn text(what: &str, argument: &str) -> Result<String, CliError> {
    let read = match argument.strip_prefix('@') {
        Some(path) => File::open(path)
            .and_then(bounded)
            .map_err(|error| (path, error)),
        None if argument == "-" => bounded(io::stdin()).map_err(|error| ("standard input", error)),
        None => return Ok(argument.to_owned()),
    };
    read.map_err(|(from, error)| CliError::Input(format!("{what}: {from} can't be read: {error}")))
}

fn bounded(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("more than {MAX_BYTES} bytes")));
    }
    Ok(text)
}
