//! A format as somebody wrote it down, in JSON or YAML; what is wrong with it is said with a
//! pointer to the place.

use super::codec::Codec;
use super::detect::{Pattern, PatternKind};
use super::error::DefinitionError;
use super::json;
use super::mapping::{Mapping, Rule};
use super::node::Node;
use super::schema::Schema;
use super::transform::Transform;
use super::yaml;

/// Far more than any format needs; a definition may come from a service.
const MAX_BYTES: usize = 256 * 1024;
const MAX_NAME: usize = 64;
/// Every message is held against every pattern.
const MAX_PATTERNS: usize = 32;
const MAX_FIELDS: usize = 256;

const KEYS: [&str; 10] = [
    "format_name",
    "version",
    "description",
    "content_type",
    "binary",
    "codec",
    "detection_patterns",
    "field_mapping",
    "schema",
    "defaults",
];

/// A format that can be registered.
#[derive(Clone, Debug)]
pub struct Definition {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) description: String,
    pub(crate) content_type: String,
    pub(crate) codec: Codec,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) mapping: Mapping,
    pub(crate) schema: Option<Schema>,
}

type Parsed<T> = Result<T, DefinitionError>;

fn fault<T>(pointer: &str, reason: impl Into<String>) -> Parsed<T> {
    Err(DefinitionError {
        pointer: pointer.to_owned(),
        reason: reason.into(),
    })
}

impl Definition {
    /// Reads a definition in JSON.
    ///
    /// # Errors
    /// [`DefinitionError`], with a pointer to the fault.
    pub fn parse_json(text: &str) -> Result<Definition, DefinitionError> {
        bounded(text)?;
        match json::tree(text) {
            Ok(tree) => Definition::from_tree(&tree),
            Err(wrong) => fault("", wrong.to_string()),
        }
    }

    /// Reads a definition in YAML. Only `true` and `false` are booleans.
    ///
    /// # Errors
    /// [`DefinitionError`], with a pointer to the fault, or with line and column where it isn't
    /// YAML.
    pub fn parse_yaml(text: &str) -> Result<Definition, DefinitionError> {
        bounded(text)?;
        match yaml::tree(text) {
            Ok(tree) => Definition::from_tree(&tree),
            Err(wrong) => fault("", wrong),
        }
    }

    /// The name that messages and metadata call it by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn from_tree(tree: &Node<'_>) -> Parsed<Definition> {
        let Node::Object(members) = tree else {
            return fault("", "it is an object with format_name and field_mapping");
        };
        if let Some((key, _)) = members.iter().find(|(key, _)| !KEYS.contains(&&**key)) {
            return fault(
                &place("", key),
                format!("no such key; known are {}", KEYS.join(", ")),
            );
        }
        let get = |name: &str| {
            members
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value)
        };
        let text = |name: &str| match get(name) {
            None => Ok(None),
            Some(Node::String(text)) => Ok(Some(text.clone().into_owned())),
            Some(_) => fault(
                &place("", name),
                "it is text; quote what looks like a number",
            ),
        };
        let Some(name) = text("format_name")? else {
            return fault("/format_name", "it is missing");
        };
        check_name(&name)?;
        let codec = codec(text("codec")?, get("binary"))?;
        let schema = match get("schema") {
            None => None,
            Some(schema) => match Schema::compile(&schema.to_json()) {
                Ok(schema) => Some(schema),
                Err(reason) => return fault("/schema", reason),
            },
        };
        let content_type = text("content_type")?;
        if content_type.as_ref().is_some_and(|kind| {
            kind.is_empty()
                || !kind
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() || byte == b' ')
        }) {
            return fault(
                "/content_type",
                "it is a media type, application/json for one",
            );
        }
        Ok(Definition {
            name,
            version: text("version")?.unwrap_or_else(|| "1.0".to_owned()),
            description: text("description")?.unwrap_or_default(),
            content_type: content_type.unwrap_or_else(|| codec.content_type().to_owned()),
            codec,
            schema,
            patterns: patterns(get("detection_patterns"))?,
            mapping: Mapping::new(rules(get("field_mapping"))?, defaults(get("defaults"))?),
        })
    }
}

fn bounded(text: &str) -> Parsed<()> {
    match text.len() > MAX_BYTES {
        true => fault("", format!("it has more than {MAX_BYTES} bytes")),
        false => Ok(()),
    }
}

fn check_name(name: &str) -> Parsed<()> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    match !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(fits) {
        true => Ok(()),
        false => fault(
            "/format_name",
            format!("it is 1 to {MAX_NAME} letters, digits, '_', '-' or '.'"),
        ),
    }
}

/// A step further in a JSON pointer.
fn place(pointer: &str, key: &str) -> String {
    let key: String = key.chars().take(MAX_NAME).collect();
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn codec(name: Option<String>, binary: Option<&Node<'_>>) -> Parsed<Codec> {
    let codec = match name {
        None => Codec::Json,
        Some(name) => match Codec::ALL.iter().find(|(known, _)| *known == name) {
            Some((_, codec)) => *codec,
            None => return fault("/codec", format!("it is one of {}", names(&Codec::ALL))),
        },
    };
    match binary {
        None => Ok(codec),
        Some(Node::Bool(binary)) if *binary == codec.is_binary() => Ok(codec),
        Some(Node::Bool(true)) => fault("/binary", "a binary format says codec: msgpack or cbor"),
        Some(Node::Bool(false)) => fault("/binary", "its codec is binary"),
        Some(_) => fault("/binary", "it is true or false"),
    }
}

fn names<T>(table: &[(&str, T)]) -> String {
    let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

fn patterns(node: Option<&Node<'_>>) -> Parsed<Vec<Pattern>> {
    let at = "/detection_patterns";
    let listed = match node {
        None => return Ok(Vec::new()),
        Some(Node::Array(listed)) if listed.len() <= MAX_PATTERNS => listed,
        Some(Node::Array(_)) => return fault(at, format!("there are more than {MAX_PATTERNS}")),
        Some(_) => return fault(at, "it is a list"),
    };
    let each = listed.iter().enumerate();
    each.map(|(n, node)| pattern(&format!("{at}/{n}"), node))
        .collect()
}

fn pattern(at: &str, node: &Node<'_>) -> Parsed<Pattern> {
    let Node::Object(members) = node else {
        return fault(at, "it is an object with pattern_type, pattern, confidence");
    };
    let (mut kind, mut what, mut confidence) = (None, None, None);
    for (key, value) in members {
        match (key.as_ref(), value) {
            ("pattern_type", Node::String(text)) => kind = Some(text.as_ref()),
            ("pattern", value) => what = Some(value),
            ("confidence", Node::Number(number)) => confidence = number.parse::<f64>().ok(),
            ("pattern_type" | "confidence", _) => {
                return fault(&place(at, key), "it is a name, a number between 0 and 1");
            }
            _ => {
                return fault(
                    &place(at, key),
                    "no such key; known are pattern_type, pattern, confidence",
                );
            }
        }
    }
    let confidence = match confidence {
        Some(confidence) if (0.0..=1.0).contains(&confidence) => confidence,
        Some(_) => return fault(&place(at, "confidence"), "it is a number from 0.0 to 1.0"),
        None => {
            return fault(
                &place(at, "confidence"),
                "it is missing: a number from 0.0 to 1.0",
            );
        }
    };
    let Some(what) = what else {
        return fault(&place(at, "pattern"), "it is missing");
    };
    let wanted = match (kind, what) {
        (Some("json_keys"), Node::String(list)) => {
            let keys = list.split(',').map(|key| key.trim().to_owned()).collect();
            PatternKind::keys(keys)
        }
        (Some("json_keys"), Node::Array(list)) => {
            let mut keys = Vec::new();
            for key in list {
                match key {
                    Node::String(key) => keys.push(key.clone().into_owned()),
                    _ => return fault(&place(at, "pattern"), "a key is text"),
                }
            }
            PatternKind::keys(keys)
        }
        (Some("prefix"), Node::String(text)) => PatternKind::prefix(text),
        (Some("contains"), Node::String(text)) => PatternKind::contains(text),
        (Some("regex"), Node::String(text)) => PatternKind::regex(text),
        (Some("prefix" | "contains" | "regex" | "json_keys"), _) => Err("it is text".to_owned()),
        _ => {
            return fault(
                &place(at, "pattern_type"),
                "it is one of prefix, regex, contains, json_keys",
            );
        }
    };
    match wanted {
        Ok(kind) => Ok(Pattern { kind, confidence }),
        Err(reason) => fault(&place(at, "pattern"), reason),
    }
}

fn rules(node: Option<&Node<'_>>) -> Parsed<Vec<Rule>> {
    let at = "/field_mapping";
    let members = match node {
        None => return Ok(Vec::new()),
        Some(Node::Object(members)) if members.len() <= MAX_FIELDS => members,
        Some(Node::Object(_)) => return fault(at, format!("there are more than {MAX_FIELDS}")),
        Some(_) => return fault(at, "it is an object: their name to the canonical one"),
    };
    let each = members.iter();
    each.map(|(theirs, target)| rule(&place(at, theirs), theirs, target))
        .collect()
}

fn rule(at: &str, theirs: &str, target: &Node<'_>) -> Parsed<Rule> {
    let mut rule = Rule {
        theirs: theirs.to_owned(),
        canonical: String::new(),
        transform: None,
        inverse: false,
    };
    match target {
        Node::String(canonical) => rule.canonical = canonical.clone().into_owned(),
        Node::Object(members) => {
            for (key, value) in members {
                match (key.as_ref(), value) {
                    ("to", Node::String(canonical)) => {
                        rule.canonical = canonical.clone().into_owned();
                    }
                    ("transform", Node::String(name)) => {
                        let known = Transform::ALL.iter().find(|(known, _)| known == name);
                        let Some((_, transform)) = known else {
                            return fault(
                                &place(at, key),
                                format!("it is one of {}", names(&Transform::ALL)),
                            );
                        };
                        rule.transform = Some(*transform);
                    }
                    ("inverse", Node::Bool(inverse)) => rule.inverse = *inverse,
                    ("to" | "transform", _) => return fault(&place(at, key), "it is text"),
                    ("inverse", _) => return fault(&place(at, key), "it is true or false"),
                    _ => {
                        return fault(
                            &place(at, key),
                            "no such key; known are to, transform, inverse",
                        );
                    }
                }
            }
        }
        _ => {
            return fault(
                at,
                "it is a canonical name, or an object with to and transform",
            );
        }
    }
    if rule.canonical.is_empty() {
        return fault(at, "the canonical name is missing");
    }
    if rule.inverse && rule.transform.is_none() {
        return fault(&place(at, "inverse"), "there is no transform to turn round");
    }
    Ok(rule)
}

fn defaults(node: Option<&Node<'_>>) -> Parsed<Vec<(String, String)>> {
    match node {
        None => Ok(Vec::new()),
        Some(Node::Object(members)) if members.len() <= MAX_FIELDS => Ok(members
            .iter()
            .map(|(name, value)| (name.clone().into_owned(), value.to_json()))
            .collect()),
        Some(Node::Object(_)) => fault("/defaults", format!("there are more than {MAX_FIELDS}")),
        Some(_) => fault("/defaults", "it is an object: their name to a value"),
    }
}
