//! The formats that are known, and trying them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crossway_core::code::{Code, Refusal};
use crossway_core::format::Definition;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Commands, bad, parse, raw};
use crate::directory::DirectoryError;

/// The most formats that may be registered: every daemon compiles them all.
const MAX_FORMATS: usize = 256;

/// The longest definition, in bytes of JSON.
const MAX_DEFINITION: usize = 64 * 1024;

#[derive(Deserialize)]
struct DataParams<'a> {
    #[serde(borrow)]
    data: &'a RawValue,
}

#[derive(Deserialize)]
struct ConvertParams<'a> {
    #[serde(borrow)]
    data: &'a RawValue,
    source_format: String,
    target_format: String,
}

impl Commands<'_> {
    pub(super) async fn format_register(&self, params: &[u8]) -> Result<Value, DirectoryError> {
        let text = std::str::from_utf8(params).map_err(|error| bad(&error))?;
        if text.len() > MAX_DEFINITION {
            let size = format!(
                "the definition has {} bytes; {MAX_DEFINITION} are allowed",
                text.len()
            );
            return Err(Refusal::new(Code::BadParameters, size).into());
        }
        let definition = Definition::parse_json(text).map_err(|error| bad(&error))?;
        let name = definition.name().to_owned();
        let options = self.directory.options();
        if options.formats.get(&name).is_some() {
            let message = format!("format {name} is built in or configured, and stays as it is");
            return Err(Refusal::new(Code::NameTaken, message).into());
        }
        let key = options.keyspace.formats();
        let stored = self.store.hash_all(&key).await?;
        if stored.len() >= MAX_FORMATS && !stored.contains_key(&name) {
            let message = format!("{MAX_FORMATS} formats are registered, which is the limit");
            return Err(Refusal::new(Code::RegistryFull, message).into());
        }
        self.store.hash_set(&key, &name, text).await?;
        // The answer says that it is known, so it must be by then.
        self.directory.refresh().await?;
        Ok(json!({"format": name, "registered": true}))
    }

    pub(super) fn format_list(&self) -> Value {
        let formats = self.directory.formats();
        let shown: Vec<Value> = formats
            .iter()
            .map(|format| {
                json!({
                    "format_name": format.name(),
                    "version": format.version(),
                    "description": format.description(),
                    "content_type": format.content_type(),
                    "binary": format.is_binary(),
                })
            })
            .collect();
        json!({"formats": shown})
    }

    pub(super) fn format_detect(&self, params: &[u8]) -> Result<Value, DirectoryError> {
        let params: DataParams<'_> = parse(params)?;
        let data = bytes_of(params.data);
        let formats = self.directory.formats();
        let detected = formats.detect(&data);
        let name = detected.best.map(|format| format.name());
        Ok(json!({"format": name, "confidence": detected.confidence}))
    }

    /// What comes out is given digit for digit, not read into numbers on the way.
    pub(super) fn format_convert(&self, params: &[u8]) -> Result<Box<RawValue>, DirectoryError> {
        let params: ConvertParams<'_> = parse(params)?;
        let data = bytes_of(params.data);
        let formats = self.directory.formats();
        let converted = formats
            .convert(&params.source_format, &params.target_format, &data)
            .map_err(|error| Refusal::new(Code::BadParameters, error.to_string()))?;
        let data = match serde_json::from_slice(&converted) {
            Ok(value) => value,
            Err(_) => raw(&Value::String(BASE64_STANDARD.encode(&converted))),
        };
        Ok(serde_json::value::to_raw_value(&Converted { data }).unwrap_or_default())
    }
}

#[derive(Serialize)]
struct Converted {
    data: Box<RawValue>,
}

/// What is in `data`: the text of a string, or a value as it was written.
fn bytes_of(data: &RawValue) -> Vec<u8> {
    match serde_json::from_str::<String>(data.get()) {
        Ok(text) => text.into_bytes(),
        Err(_) => data.get().as_bytes().to_vec(),
    }
}
