//! Overrides from the environment: `CROSSWAY_RELAY__STORE=…` is `store` in `[relay]`.
//!
//! They are laid into the parsed file before it becomes a configuration, each with a span of its
//! own beyond the end of the file, by which a fault in it is told from one in the file.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::fault::{Fault, Place};
use super::place::value_at;

const PREFIX: &str = "CROSSWAY_";
/// What orchestrators set for a service that happens to be called `crossway`.
const NOT_OURS: [&str; 2] = ["CROSSWAY_SERVICE_", "CROSSWAY_PORT"];

/// The variables that are ours, and a fault for each of them that isn't UTF-8: left out, it would
/// look as if it had been heeded.
pub(super) fn readable(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> (Vec<(String, String)>, Vec<Fault>) {
    let mut variables = Vec::new();
    let mut faults = Vec::new();
    for (name, text) in environment.into_iter().filter(|(name, _)| ours(name)) {
        let fault = |what: &str| Fault {
            // Without its value, which may be a password.
            place: Place::Variable(name.to_string_lossy().into_owned()),
            what: what.to_owned(),
            hint: Some("set it as UTF-8, or unset it".to_owned()),
        };
        match (name.to_str(), text.to_str()) {
            (Some(name), Some(text)) => variables.push((name.to_owned(), text.to_owned())),
            (None, _) => faults.push(fault("its name isn't UTF-8")),
            (_, None) => faults.push(fault("its value isn't UTF-8")),
        }
    }
    (variables, faults)
}

fn ours(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(PREFIX.as_bytes())
        && !NOT_OURS
            .iter()
            .any(|other| name.starts_with(other.as_bytes()))
}

/// The variables that were laid over a file.
pub(super) struct Overrides<'e> {
    variables: Vec<Variable<'e>>,
    base: usize,
}

struct Variable<'e> {
    name: &'e str,
    text: &'e str,
    /// Whether its text was read as a number, a boolean or an array.
    typed: bool,
}

impl<'e> Overrides<'e> {
    /// Sorts the variables by name. `base` is where their spans may begin.
    pub(super) fn new(environment: &'e [(String, String)], base: usize) -> Overrides<'e> {
        let mut variables: Vec<Variable<'e>> = environment
            .iter()
            .map(|(name, text)| Variable {
                name,
                text,
                typed: true,
            })
            .collect();
        variables.sort_by(|a, b| a.name.cmp(b.name));
        Overrides { variables, base }
    }

    /// Lays all of them into the file, and tells of those whose path can't be.
    pub(super) fn lay_over(&mut self, table: &mut DeTable<'e>) -> Vec<Fault> {
        let mut faults = Vec::new();
        for at in 0..self.variables.len() {
            let span = self.span(at);
            let Some(variable) = self.variables.get_mut(at) else {
                continue;
            };
            let value = match typed(variable.text, &span) {
                Some(value) => value,
                None => {
                    variable.typed = false;
                    DeValue::String(Cow::Borrowed(variable.text))
                }
            };
            let path = variable
                .name
                .get(PREFIX.len()..)
                .unwrap_or_default()
                .to_ascii_lowercase();
            let keys: Vec<&str> = path.split("__").collect();
            if keys.iter().any(|key| key.is_empty()) || !put(table, &keys, &span, value) {
                faults.push(Fault {
                    place: Place::Variable(variable.name.to_owned()),
                    what: "it names no key".to_owned(),
                    hint: Some("write CROSSWAY_SECTION__KEY".to_owned()),
                });
            }
        }
        faults
    }

    /// The variable that a span belongs to.
    pub(super) fn name_at(&self, span: &Range<usize>) -> Option<&str> {
        self.index(span)
            .and_then(|at| self.variables.get(at))
            .map(|variable| variable.name)
    }

    /// Takes a variable's text for text after all, where it was read as something else and that
    /// was refused: a password may consist of digits.
    pub(super) fn retry_as_text(&mut self, table: &mut DeTable<'e>, span: &Range<usize>) -> bool {
        let Some(at) = self.index(span) else {
            return false;
        };
        let span = self.span(at);
        let Some(variable) = self.variables.get_mut(at) else {
            return false;
        };
        if !std::mem::take(&mut variable.typed) {
            return false;
        }
        match value_at(table, &span) {
            Some(value) => {
                *value.get_mut() = DeValue::String(Cow::Borrowed(variable.text));
                true
            }
            None => false,
        }
    }

    // Two apart: the second is for the sections that a variable brings with it.
    fn span(&self, at: usize) -> Range<usize> {
        let start = self.base + 2 * at;
        start..start + 1
    }

    fn index(&self, span: &Range<usize>) -> Option<usize> {
        span.start.checked_sub(self.base).map(|offset| offset / 2)
    }
}

/// The text as a number, a boolean or an array; `None` where it is anything else.
fn typed<'e>(text: &'e str, span: &Range<usize>) -> Option<DeValue<'e>> {
    let value = DeValue::parse(text).ok()?.into_inner();
    match value {
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Array(_) => {
            Some(moved(value, span))
        }
        _ => None,
    }
}

/// The same value, with all that is in it at one span.
fn moved<'e>(value: DeValue<'e>, span: &Range<usize>) -> DeValue<'e> {
    let DeValue::Array(array) = value else {
        return value;
    };
    let mut elements = DeArray::new();
    for element in array {
        elements.push(Spanned::new(
            span.clone(),
            moved(element.into_inner(), span),
        ));
    }
    DeValue::Array(elements)
}

fn put<'i>(
    table: &mut DeTable<'i>,
    keys: &[&str],
    span: &Range<usize>,
    value: DeValue<'i>,
) -> bool {
    let Some((first, rest)) = keys.split_first() else {
        return false;
    };
    if rest.is_empty() {
        let key = Spanned::new(span.clone(), Cow::Owned((*first).to_owned()));
        table.remove(*first);
        table.insert(key, Spanned::new(span.clone(), value));
        return true;
    }
    if !table.contains_key(*first) {
        let section = span.end..span.end + 1;
        let key = Spanned::new(section.clone(), Cow::Owned((*first).to_owned()));
        table.insert(key, Spanned::new(section, DeValue::Table(DeTable::new())));
    }
    match table.get_mut(*first).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => put(inner, rest, span, value),
        _ => false,
    }
}
