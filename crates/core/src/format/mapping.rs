//! Names and values of a format's fields, towards the canonical ones and back.

use std::borrow::Cow;

use super::json;
use super::transform::Transform;

/// A field of a message: its name, and its value as JSON text.
pub(crate) type Field<'m> = (Cow<'m, str>, Cow<'m, str>);

/// What happens to one field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    pub(crate) theirs: String,
    pub(crate) canonical: String,
    pub(crate) transform: Option<Transform>,
    /// The transform works the other way round.
    pub(crate) inverse: bool,
}

/// Why a message's fields can't be mapped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MappingFault {
    /// The field, by the name that it came with.
    pub(crate) field: Option<String>,
    pub(crate) what: &'static str,
}

/// Rules of all fields, found by either name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapping {
    /// In order of `theirs`.
    rules: Vec<Rule>,
    /// Canonical names in order, and where their rule is; where several fields become one, the
    /// one that the definition names first.
    back: Vec<(String, usize)>,
    /// What is added on writing, and left out on reading where no rule names it.
    defaults: Vec<(String, String)>,
}

impl Mapping {
    pub(crate) fn new(rules: Vec<Rule>, defaults: Vec<(String, String)>) -> Mapping {
        let mut sorted: Vec<(usize, Rule)> = rules.into_iter().enumerate().collect();
        sorted.sort_by(|(_, a), (_, b)| a.theirs.cmp(&b.theirs));
        let mut back: Vec<(String, usize, usize)> = sorted
            .iter()
            .enumerate()
            .map(|(at, (given, rule))| (rule.canonical.clone(), *given, at))
            .collect();
        back.sort();
        back.dedup_by(|later, first| later.0 == first.0);
        Mapping {
            rules: sorted.into_iter().map(|(_, rule)| rule).collect(),
            back: back.into_iter().map(|(name, _, at)| (name, at)).collect(),
            defaults,
        }
    }

    fn by_theirs(&self, name: &str) -> Option<&Rule> {
        let found = self
            .rules
            .binary_search_by(|rule| rule.theirs.as_str().cmp(name));
        self.rules.get(found.ok()?)
    }

    fn by_canonical(&self, name: &str) -> Option<&Rule> {
        let found = self
            .back
            .binary_search_by(|(canonical, _)| canonical.as_str().cmp(name));
        let (_, at) = self.back.get(found.ok()?)?;
        self.rules.get(*at)
    }

    /// From this format's names to the canonical ones.
    pub(crate) fn forward<'m>(&'m self, fields: &mut Vec<Field<'m>>) -> Result<(), MappingFault> {
        fields.retain(|(name, value)| {
            self.by_theirs(name).is_some()
                || !self
                    .defaults
                    .iter()
                    .any(|(theirs, default)| theirs == name && default == value)
        });
        for (name, value) in fields.iter_mut() {
            if let Some(rule) = self.by_theirs(name) {
                apply(rule, !rule.inverse, name, value)?;
                *name = Cow::Borrowed(&rule.canonical);
            }
        }
        one_each(fields)
    }

    /// From the canonical names to this format's.
    pub(crate) fn back<'m>(&'m self, fields: &mut Vec<Field<'m>>) -> Result<(), MappingFault> {
        for (name, value) in fields.iter_mut() {
            if let Some(rule) = self.by_canonical(name) {
                apply(rule, rule.inverse, name, value)?;
                *name = Cow::Borrowed(&rule.theirs);
            }
        }
        one_each(fields)?;
        for (name, value) in &self.defaults {
            if !fields.iter().any(|(there, _)| there == name) {
                fields.push((Cow::Borrowed(name), Cow::Borrowed(value)));
            }
        }
        Ok(())
    }
}

fn apply(
    rule: &Rule,
    forward: bool,
    name: &str,
    value: &mut Cow<'_, str>,
) -> Result<(), MappingFault> {
    let Some(transform) = rule.transform else {
        return Ok(());
    };
    let transformed = match forward {
        true => transform.forward(value),
        false => transform.back(value),
    };
    match transformed {
        // What is borrowed is the value itself.
        Ok(Cow::Borrowed(_)) if !is_constant(transform) => Ok(()),
        Ok(changed) => {
            *value = Cow::Owned(changed.into_owned());
            Ok(())
        }
        Err(what) => Err(MappingFault {
            field: Some(name.chars().take(64).collect()),
            what,
        }),
    }
}

/// Whether a transform gives one of a few fixed texts, instead of the value that it was given.
fn is_constant(transform: Transform) -> bool {
    transform == Transform::Boolean
}

fn one_each(fields: &[Field<'_>]) -> Result<(), MappingFault> {
    json::distinct(fields.iter().map(|(name, _)| name.as_ref())).map_err(|()| MappingFault {
        field: None,
        what: "two fields would become one",
    })
}
