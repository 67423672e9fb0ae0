//! What happens to a single value on its way between a format's form and the canonical one.
//!
//! Towards the canonical form a value that is there already is taken as it is; on the way back
//! the canonical form is required, so that what leaves comes home the same or not at all. `null`
//! says that there is nothing, and passes, except where it would be JSON text.

use std::borrow::Cow;

use super::decimal::Decimal;
use super::{date, json};

/// The seven transforms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transform {
    String,
    Number,
    Boolean,
    TimestampMs,
    TimestampS,
    IsoDate,
    Json,
}

type Transformed<'v> = Result<Cow<'v, str>, &'static str>;

const NO_NUMBER: &str = "it isn't a number";
const OUT_OF_RANGE: &str = "the number is out of range";

impl Transform {
    pub(crate) const ALL: [(&'static str, Transform); 7] = [
        ("string", Transform::String),
        ("number", Transform::Number),
        ("boolean", Transform::Boolean),
        ("timestamp_ms", Transform::TimestampMs),
        ("timestamp_s", Transform::TimestampS),
        ("iso_date", Transform::IsoDate),
        ("json", Transform::Json),
    ];

    /// Towards the canonical form; takes and gives the text of a JSON value.
    pub(crate) fn forward(self, value: &str) -> Transformed<'_> {
        if value == "null" && self != Transform::Json {
            return Ok(Cow::Borrowed(value));
        }
        match self {
            Transform::String => match value.as_bytes().first() {
                Some(b'"') => Ok(Cow::Borrowed(value)),
                Some(b'{' | b'[') => Err("only text, a number or a boolean becomes a string"),
                _ => Ok(Cow::Owned(format!("\"{value}\""))),
            },
            Transform::Number => match json::unquote(value) {
                Some(text) if json::is_number(&text) => Ok(Cow::Owned(text.into_owned())),
                Some(_) => Err("its text isn't exactly a number"),
                None if json::is_number(value) => Ok(Cow::Borrowed(value)),
                None => Err(NO_NUMBER),
            },
            Transform::Boolean => {
                let content = json::unquote(value);
                match content.as_deref().unwrap_or(value) {
                    "true" | "1" => Ok(Cow::Borrowed("true")),
                    "false" | "0" => Ok(Cow::Borrowed("false")),
                    _ => Err("it is neither true nor false"),
                }
            }
            Transform::TimestampMs => decimal(value)?
                .moved(-3)
                .map(|seconds| Cow::Owned(seconds.to_json()))
                .ok_or(OUT_OF_RANGE),
            Transform::TimestampS => Ok(Cow::Owned(decimal(value)?.whole().to_json())),
            Transform::IsoDate => date::to_rfc3339(&decimal(value)?)
                .map(|text| Cow::Owned(format!("\"{text}\"")))
                .ok_or("the moment is outside of the years 0000 to 9999"),
            Transform::Json => {
                let text = json::unquote(value).ok_or("it isn't JSON text")?;
                let text = text.trim_matches([' ', '\n', '\r', '\t']);
                json::Document::read(text).map_err(|_| "its text isn't JSON")?;
                Ok(Cow::Owned(text.to_owned()))
            }
        }
    }

    /// From the canonical form.
    pub(crate) fn back(self, value: &str) -> Transformed<'_> {
        if value == "null" && self != Transform::Json {
            return Ok(Cow::Borrowed(value));
        }
        match self {
            Transform::String => {
                let text = json::unquote(value).ok_or("it isn't a string")?;
                match text.as_ref() == "true" || text.as_ref() == "false" || json::is_number(&text)
                {
                    true => Ok(Cow::Owned(text.into_owned())),
                    false => Ok(Cow::Borrowed(value)),
                }
            }
            Transform::Number => match json::is_number(value) {
                true => Ok(Cow::Owned(format!("\"{value}\""))),
                false => Err(NO_NUMBER),
            },
            Transform::Boolean => match value {
                "true" | "false" => Ok(Cow::Owned(format!("\"{value}\""))),
                _ => Err("it isn't a boolean"),
            },
            Transform::TimestampMs => decimal(value)?
                .moved(3)
                .map(|ms| Cow::Owned(ms.to_json()))
                .ok_or(OUT_OF_RANGE),
            Transform::TimestampS => Ok(Cow::Owned(decimal(value)?.whole().to_json())),
            Transform::IsoDate => json::unquote(value)
                .and_then(|text| date::from_rfc3339(&text))
                .map(|seconds| Cow::Owned(seconds.to_json()))
                .ok_or("it isn't a moment of RFC 3339"),
            Transform::Json => {
                let mut out = String::with_capacity(value.len() + 8);
                json::quote(value, &mut out);
                Ok(Cow::Owned(out))
            }
        }
    }
}

fn decimal(value: &str) -> Result<Decimal, &'static str> {
    if !json::is_number(value) {
        return Err(NO_NUMBER);
    }
    Decimal::read(value).ok_or(OUT_OF_RANGE)
}
