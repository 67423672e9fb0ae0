//! From one format to another: read, rename, transform, write.

use std::borrow::Cow;

use super::error::ConvertError;
use super::json::{self, Document};
use super::mapping::{Field, MappingFault};
use super::registry::Format;

/// The same message in another format. What has no fields, a list or a single value, has nothing
/// to be mapped and keeps its value.
pub(crate) fn translate(from: &Format, to: &Format, data: &[u8]) -> Result<Vec<u8>, ConvertError> {
    let not_it = |reason: String| ConvertError::NotInFormat {
        format: from.name().to_owned(),
        reason,
    };
    let failed = |fault: MappingFault| ConvertError::Translation {
        from: from.name().to_owned(),
        to: to.name().to_owned(),
        field: fault.field,
        reason: fault.what.to_owned(),
    };
    let text = from
        .codec()
        .read(data)
        .map_err(|fault| not_it(fault.to_string()))?;
    let document = Document::read(&text).map_err(|fault| not_it(fault.to_string()))?;
    if let Some(schema) = from.schema() {
        schema.check(&text).map_err(not_it)?;
    }
    let json = match document {
        Document::Other(value) => value.to_owned(),
        Document::Object(members) => {
            let mut fields: Vec<Field<'_>> = members
                .into_iter()
                .map(|(name, value)| (name, Cow::Borrowed(value)))
                .collect();
            if from.name() != to.name() {
                from.mapping().forward(&mut fields).map_err(failed)?;
                to.mapping().back(&mut fields).map_err(failed)?;
            }
            object(&fields, text.len())
        }
    };
    let impossible = |reason: String| ConvertError::Translation {
        from: from.name().to_owned(),
        to: to.name().to_owned(),
        field: None,
        reason,
    };
    if let Some(schema) = to.schema() {
        schema.check(&json).map_err(impossible)?;
    }
    let written = to.codec().write(json);
    written.map_err(|fault| impossible(fault.to_string()))
}

fn object(fields: &[Field<'_>], about: usize) -> String {
    let mut out = String::with_capacity(about.saturating_add(64));
    out.push('{');
    for (n, (name, value)) in fields.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        json::quote(name, &mut out);
        out.push(':');
        out.push_str(value);
    }
    out.push('}');
    out
}
