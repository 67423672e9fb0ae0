//! A value taken apart: what stands between JSON text and the other codecs.

use std::borrow::Cow;

use super::json;

/// A value of JSON. Numbers are text, so that no digit is lost.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node<'t> {
    Null,
    Bool(bool),
    Number(Cow<'t, str>),
    String(Cow<'t, str>),
    Array(Vec<Node<'t>>),
    Object(Vec<(Cow<'t, str>, Node<'t>)>),
}

impl Node<'_> {
    /// Appends the value as JSON.
    pub(crate) fn write(&self, out: &mut String) {
        match self {
            Node::Null => out.push_str("null"),
            Node::Bool(true) => out.push_str("true"),
            Node::Bool(false) => out.push_str("false"),
            Node::Number(text) => out.push_str(text),
            Node::String(text) => json::quote(text, out),
            Node::Array(items) => {
                out.push('[');
                for (n, item) in items.iter().enumerate() {
                    if n > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Node::Object(members) => {
                out.push('{');
                for (n, (key, value)) in members.iter().enumerate() {
                    if n > 0 {
                        out.push(',');
                    }
                    json::quote(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    pub(crate) fn to_json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }
}
