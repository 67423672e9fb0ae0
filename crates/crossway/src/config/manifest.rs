//! The manifest that a configuration names: read and checked with it, so that a faulty one is
//! refused as a faulty configuration is.

use crossway_relay::Manifest;

use super::Config;
use super::checks::Contradiction;
use crate::regular;

/// No manifest is longer: it is a hundred bytes a site, for all sites that may be registered.
const MAX_BYTES: u64 = 64 << 20;

pub(super) fn read(config: &Config) -> Result<Manifest, Contradiction> {
    let Some(path) = &config.relay.manifest else {
        return Ok(Manifest::default());
    };
    let wrong = |reason: &dyn std::fmt::Display, hint| Contradiction {
        key: &["relay", "manifest"],
        what: format!(
            "{}: {}",
            path.display(),
            reason.to_string().replace('\n', " ")
        ),
        hint,
    };
    let unreadable = |error: std::io::Error| wrong(&error, "check the path and its permissions");
    let bytes = regular::read(path, MAX_BYTES).map_err(unreadable)?;
    let text = String::from_utf8(bytes)
        .map_err(|error| wrong(&error.utf8_error(), "save the file as UTF-8"))?;
    let keys = config
        .relay
        .keyspace()
        .map_err(|error| wrong(&error, "choose other words for the keys"))?;
    Manifest::parse(&text, &keys).map_err(|error| {
        wrong(
            &error,
            "see crossway inspect manifest for what a file would register",
        )
    })
}
