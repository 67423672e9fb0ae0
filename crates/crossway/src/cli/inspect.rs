//! `crossway inspect …`: what needs no store.

use clap::Subcommand;
use crossway_core::address::Environment;
use crossway_relay::Manifest;
use serde_json::json;

use super::format::Format;
use super::output::Output;
use super::{Answer, CliError, Common, argument};

/// What to look into.
#[derive(Debug, Subcommand)]
pub(super) enum Inspect {
    /// Show the sites and entities that a manifest would register.
    Manifest {
        /// The file; `-` is standard input.
        file: String,
    },
    /// See which format data is in, and make it into another.
    #[command(subcommand)]
    Format(Format),
}

impl Inspect {
    pub(super) fn run(self, common: &Common, output: Output) -> Result<Answer, CliError> {
        match self {
            Inspect::Manifest { file } => manifest(&file, common, output),
            Inspect::Format(format) => format.run(output),
        }
    }
}

fn manifest(file: &str, common: &Common, output: Output) -> Result<Answer, CliError> {
    let name = file.strip_prefix('@').unwrap_or(file);
    let argument = if name == "-" {
        name.to_owned()
    } else {
        format!("@{name}")
    };
    let text = argument::text("the manifest", &argument)?;
    let config = common.configuration()?;
    let keys = config
        .relay
        .keyspace()
        .map_err(|error| CliError::Input(error.to_string()))?;
    let manifest = Manifest::parse(&text, &keys).map_err(|error| {
        CliError::Input(format!("{name}: {}", error.to_string().replace('\n', " ")))
    })?;
    let mut sites = Vec::new();
    let mut lines = String::new();
    for service in &manifest.services {
        let environments: Vec<&str> = service
            .environments
            .iter()
            .map(Environment::as_str)
            .collect();
        lines.push_str(&format!(
            "site {}  {}\n",
            service.site,
            environments.join(",")
        ));
        let mut entities = Vec::new();
        for (entity, metadata) in &service.entities {
            lines.push_str(&format!("entity {entity}  of {}\n", service.site));
            entities.push(json!({"id": entity.as_str(), "metadata": metadata}));
        }
        sites.push(json!({
            "id": service.site.as_str(),
            "environments": environments,
            "entities": entities,
            "metadata": service.metadata,
        }));
    }
    if lines.is_empty() {
        lines.push_str("it would register nothing");
    }
    output.answer(&json!({"sites": sites}), lines)?;
    Ok(Answer::Yes)
}
