//! `crossway schema`.

use super::output::Output;
use super::{Answer, CliError};
use crate::config::Config;

pub(super) fn run(output: Output) -> Result<Answer, CliError> {
    let schema = schemars::schema_for!(Config).to_value();
    output.answer(&schema, format!("{schema:#}"))?;
    Ok(Answer::Yes)
}
