//! `crossway inspect …`: what needs no store.

use clap::Subcommand;
use serde_json::json;

use super::output::Output;
use super::{Answer, CliError, argument};
use crate::manifest::Manifest;

/// What to look into.
#[derive(Debug, Subcommand)]
pub(super) enum Inspect {
    /// Show the sites and entities that a manifest would register.
    Manifest {
        /// The file; `-` is standard input.
        file: String,
    },
}

impl Inspect {
    pub(super) fn run(self, output: Output) -> Result<Answer, CliError> {
        match self {
            Inspect::Manifest { file } => manifest(&file, output),
        }
    }
}

fn manifest(file: &str, output: Output) -> Result<Answer, CliError> {
    let name = file.strip_prefix('@').unwrap_or(file);
    let argument = if name == "-" {
        name.to_owned()
    } else {
        format!("@{name}")
    };
    let text = argument::text("the manifest", &argument)?;
    let manifest =
        Manifest::parse(&text).map_err(|error| CliError::Input(format!("{name}{error}")))?;
    let mut lines = String::new();
    for site in &manifest.sites {
        let environments: Vec<&str> = site.environments.iter().map(|name| name.as_str()).collect();
        lines.push_str(&format!("site {}  {}\n", site.id, environments.join(",")));
        for entity in &site.entities {
            lines.push_str(&format!("entity {}  of {}\n", entity.id, site.id));
        }
    }
    if lines.is_empty() {
        lines.push_str("it would register nothing");
    }
    output.answer(&json!(manifest), lines)?;
    Ok(Answer::Yes)
}
