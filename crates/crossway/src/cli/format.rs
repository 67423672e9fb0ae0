//! `crossway inspect format …`: what a format makes of data.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;
use crossway_core::format::{ConvertError, Formats};
use serde_json::json;
use serde_json::value::RawValue;

use super::output::Output;
use super::{Answer, CliError, argument};

/// What to ask of formats.
#[derive(Debug, Subcommand)]
pub(super) enum Format {
    /// Say which format data is in.
    Detect {
        /// The data; `@FILE` reads a file, `-` standard input.
        #[arg(allow_hyphen_values = true)]
        data: String,
    },
    /// Make data of one format into another.
    Convert {
        /// The format that the data is in.
        #[arg(long)]
        from: String,
        /// The wanted format.
        #[arg(long)]
        to: String,
        /// The data; `@FILE` reads a file, `-` standard input.
        #[arg(allow_hyphen_values = true)]
        data: String,
    },
}

impl Format {
    pub(super) fn run(self, output: Output) -> Result<Answer, CliError> {
        let formats = Formats::builtin();
        match self {
            Format::Detect { data } => {
                detect(&formats, &argument::bytes("the data", &data)?, output)
            }
            Format::Convert { from, to, data } => {
                let data = argument::bytes("the data", &data)?;
                convert(&formats, &from, &to, &data, output)
            }
        }
    }
}

fn detect(formats: &Formats, data: &[u8], output: Output) -> Result<Answer, CliError> {
    let found = formats.detect(data);
    let name = found.best.map(crossway_core::format::Format::name);
    let confidence = found.confidence;
    output.answer(
        &json!({"format": name, "confidence": confidence}),
        match name {
            Some(name) => format!("{name}  confidence {confidence}"),
            None => format!("no format is sure enough; the best has confidence {confidence}"),
        },
    )?;
    Ok(if name.is_some() {
        Answer::Yes
    } else {
        Answer::No
    })
}

fn convert(
    formats: &Formats,
    from: &str,
    to: &str,
    data: &[u8],
    output: Output,
) -> Result<Answer, CliError> {
    let converted = match formats.convert(from, to, data) {
        Ok(converted) => converted,
        Err(error @ ConvertError::Translation { .. }) => {
            output.answer(&json!({"error": error.to_string()}), error.to_string())?;
            return Ok(Answer::No);
        }
        Err(error) => return Err(CliError::Input(error.to_string())),
    };
    let is_json = formats
        .get(to)
        .is_some_and(crossway_core::format::Format::is_json);
    let text = match is_json {
        true => String::from_utf8_lossy(&converted).into_owned(),
        false => STANDARD.encode(&converted),
    };
    // As it is, so that no digit is lost on the way to whoever reads this.
    let value = match is_json {
        true => RawValue::from_string(text.clone()),
        false => serde_json::to_string(&text).and_then(RawValue::from_string),
    };
    let value =
        value.map_err(|error| CliError::Input(format!("the result isn't JSON: {error}")))?;
    output.answer(&std::collections::BTreeMap::from([("data", value)]), text)?;
    Ok(Answer::Yes)
}
