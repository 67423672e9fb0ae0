//! `crossway check FILE`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::output::Output;
use super::{Answer, CliError};
use crate::reload::Source;

/// What to validate.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// The configuration file. Overrides from the environment are validated with it.
    file: PathBuf,
}

impl Check {
    pub(super) fn run(self, output: Output) -> Result<Answer, CliError> {
        let source = Source {
            file: Some(self.file.clone()),
            data_dir: None,
        };
        source.read()?;
        let file = self.file.display().to_string();
        output.answer(
            &json!({"valid": true, "file": file}),
            format!("{file} is valid"),
        )?;
        Ok(Answer::Yes)
    }
}
