//! Batch commands: several commands in the parameters of one.

use crossway_core::code::{Code, Refusal};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The most commands in one batch.
pub(crate) const MAX_BATCH: usize = 1000;

/// One command of a batch.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    /// Its own id, where it has one.
    pub(crate) id: Option<String>,
    /// Its name.
    pub(crate) command: String,
    /// Its parameters, JSON text.
    pub(crate) params: &'a str,
}

#[derive(Deserialize)]
struct RawItem<'a> {
    #[serde(default, alias = "id", alias = "request_id")]
    i: Option<String>,
    /// One name only: a second spelling could hide another command behind the one that policy saw.
    #[serde(alias = "cmd", alias = "command", alias = "command_name")]
    c: String,
    #[serde(default, borrow, alias = "params", alias = "parameters")]
    p: Option<&'a RawValue>,
}

/// Reads a batch: a JSON array of objects with `c`, and `i` and `p` where they are needed.
pub(crate) fn parse(params: Option<&[u8]>) -> Result<Vec<Item<'_>>, Refusal> {
    let refuse = |reason: String| {
        Refusal::new(
            Code::BadParameters,
            format!("the batch in `p` can't be read: {reason}"),
        )
    };
    let text = params.unwrap_or_default();
    let raw: Vec<RawItem<'_>> =
        serde_json::from_slice(text).map_err(|error| refuse(error.to_string()))?;
    if raw.is_empty() || raw.len() > MAX_BATCH {
        return Err(refuse(format!(
            "it has {} commands; 1 to {MAX_BATCH} are allowed",
            raw.len()
        )));
    }
    Ok(raw
        .into_iter()
        .map(|item| Item {
            id: item.i,
            command: item.c,
            params: item.p.map_or("{}", RawValue::get),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_two_names_is_refused() {
        assert!(parse(Some(br#"[{"c":"read","command":"delete"}]"#)).is_err());
        assert!(parse(Some(br#"[{"c":"read","c":"delete"}]"#)).is_err());
        let items = parse(Some(
            br#"[{"command":"read","i":"1","p":{"a":1}},{"c":"x"}]"#,
        ))
        .unwrap();
        assert_eq!(
            (
                items[0].command.as_str(),
                items[0].params,
                items[0].id.as_deref()
            ),
            ("read", r#"{"a":1}"#, Some("1"))
        );
        assert_eq!((items[1].command.as_str(), items[1].params), ("x", "{}"));
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        for text in ["", "[]", "{}", "[1]", r#"[{"p":{}}]"#] {
            assert_eq!(
                parse(Some(text.as_bytes())).unwrap_err().code,
                Code::BadParameters,
                "{text}"
            );
        }
        assert!(parse(None).is_err());
    }
}
