//! Batch commands: several commands in the parameters of one.

use std::collections::BTreeMap;

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

/// The names of commands that stand in a batch, as far as they can be read: of one that is refused
/// too, so that it is known whose it is.
pub(crate) fn names(params: Option<&[u8]>) -> Vec<String> {
    const SPELLINGS: [&str; 4] = ["c", "cmd", "command", "command_name"];
    let text = params.unwrap_or_default();
    let items: Vec<&RawValue> = serde_json::from_slice(text).unwrap_or_default();
    items
        .into_iter()
        .filter_map(|item| serde_json::from_str::<BTreeMap<String, &RawValue>>(item.get()).ok())
        .flat_map(|item| SPELLINGS.map(|spelling| item.get(spelling).map(|name| name.get())))
        .flatten()
        .filter_map(|name| serde_json::from_str(name).ok())
        .collect()
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
    fn the_names_in_a_faulty_batch_are_read_as_far_as_they_can_be() {
        let text = br#"[{"c":"ping"}, 5, {"c":7}, {"p":{}}, {"cmd":"a","command":"b"}]"#;
        assert!(parse(Some(text)).is_err());
        assert_eq!(names(Some(text)), ["ping", "a", "b"]);
        for text in [&b"[{\"c\":\"ping\"}"[..], b"{}", b"\xff", b""] {
            assert!(names(Some(text)).is_empty());
        }
        assert!(names(None).is_empty());
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
