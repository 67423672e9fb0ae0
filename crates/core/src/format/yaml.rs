//! YAML as the tree that JSON gives.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::fault::MAX_DEPTH;
use super::node::Node;

pub(crate) fn tree(text: &str) -> Result<Node<'static>, String> {
    let options = serde_saphyr::options! { strict_booleans: true };
    let Owned(node) =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())?;
    match depth(&node) > MAX_DEPTH {
        true => Err("it is nested too deeply".to_owned()),
        false => Ok(node),
    }
}

fn depth(node: &Node<'_>) -> usize {
    match node {
        Node::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Node::Object(members) => {
            1 + members
                .iter()
                .map(|(_, value)| depth(value))
                .max()
                .unwrap_or(0)
        }
        _ => 0,
    }
}

struct Owned(Node<'static>);

impl<'de> Deserialize<'de> for Owned {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Owned, D::Error> {
        from.deserialize_any(Any).map(Owned)
    }
}

struct Any;

fn number(value: impl fmt::Display) -> Node<'static> {
    Node::Number(Cow::Owned(value.to_string()))
}

impl<'de> Visitor<'de> for Any {
    type Value = Node<'static>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has a form for")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(Any)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(number(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(number(value))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Self::Value, E> {
        Ok(number(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Self::Value, E> {
        Ok(number(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        match value.is_finite() {
            true => Ok(number(format_args!("{value:?}"))),
            false => Err(E::custom("a number is infinite or none")),
        }
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Node::String(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Owned(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(Node::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut all: Vec<(Cow<'static, str>, Node<'static>)> = Vec::new();
        while let Some((key, Owned(value))) = members.next_entry::<String, Owned>()? {
            if all.iter().any(|(there, _)| *there == key) {
                return Err(A::Error::custom("a key stands there twice"));
            }
            all.push((Cow::Owned(key), value));
        }
        Ok(Node::Object(all))
    }
}
