//! Deleting what isn't used any more: one script, on one key.

use std::time::Duration;

pub(crate) const SCRIPT: &str = include_str!("idle.lua");

/// The script's argument: the store counts in whole seconds, so a part of one is taken for all of it.
pub(crate) fn argument(idle: Duration) -> String {
    let part = u64::from(idle.subsec_nanos() > 0);
    idle.as_secs().saturating_add(part).to_string()
}
