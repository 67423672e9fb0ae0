//! Several commands in one entry, and their answers in one.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::command::{Command, Failure};
use crate::entry::text;
use crate::store::Raw;

/// A batch that came to this site.
pub(crate) struct Batch {
    id: String,
    items: Result<Vec<Item>, Failure>,
}

/// One command of a batch, with the id that its sender knows it by.
pub(crate) struct Item {
    pub(crate) id: Option<String>,
    pub(crate) command: Command,
}

/// An item as it is written. Each field has one name only: a second could hide another command
/// behind the one that was let through.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(default, alias = "id", alias = "request_id")]
    i: Option<String>,
    #[serde(alias = "cmd", alias = "command", alias = "command_name")]
    c: String,
    #[serde(default, borrow, alias = "params", alias = "parameters")]
    p: Option<&'a RawValue>,
}

impl Batch {
    pub(crate) fn from_raw(raw: &Raw) -> Batch {
        let whole = Command::from_raw(raw, false);
        let written: Result<Vec<Written<'_>>, _> = serde_json::from_str(whole.params_text());
        let items = written
            .map(|items| {
                items
                    .into_iter()
                    .enumerate()
                    .map(|(at, item)| Item {
                        id: item.i,
                        command: whole.item(at, item.c, item.p.map_or("", RawValue::get)),
                    })
                    .collect()
            })
            .map_err(|error| Failure::new("INVALID_PARAMS", format!("the batch: {error}")));
        let id = text(raw, &["i", "id", "request_id"]);
        Batch {
            id: if id.is_empty() { raw.id.clone() } else { id },
            items,
        }
    }

    /// The id that the answer names, and the commands in order.
    pub(crate) fn into_parts(self) -> (String, Result<Vec<Item>, Failure>) {
        (self.id, self.items)
    }
}

/// What became of one command of a batch.
#[derive(Serialize)]
struct Answer<'a> {
    ri: Option<&'a str>,
    st: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    r: Option<&'a RawValue>,
    #[serde(rename = "_ec", skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<&'a str>,
}

/// The answers to a batch, in order, as they are written.
#[derive(Default)]
pub(crate) struct Answers(Vec<Box<RawValue>>);

impl Answers {
    pub(crate) fn push(&mut self, id: Option<&str>, outcome: Result<Box<RawValue>, Failure>) {
        let answer = match &outcome {
            Ok(result) => Answer {
                ri: id,
                st: "ok",
                r: Some(result),
                code: None,
                e: None,
            },
            Err(Failure { code, message }) => Answer {
                ri: id,
                st: "error",
                r: None,
                code: Some(code),
                e: Some(message),
            },
        };
        // Of texts and of JSON that was just written: there is nothing that could fail.
        self.0.extend(serde_json::value::to_raw_value(&answer).ok());
    }

    /// JSON text, or why it can't be written.
    pub(crate) fn into_text(self) -> Result<String, Failure> {
        serde_json::to_string(&self.0).map_err(|error| Failure::new("INTERNAL", error.to_string()))
    }
}
