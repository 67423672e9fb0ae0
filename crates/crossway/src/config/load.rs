//! From a file and the environment to a configuration, or to everything that is wrong with them.

use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

use crossway_relay::Manifest;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer};

use super::Config;
use super::checks;
use super::fault::{Fault, Faults, Place, reword};
use super::formats::{self, FormatFolder};
use super::manifest;
use super::overrides::{self, Overrides};
use super::place::{line_and_column, span_of, take_out, value_at};
use crate::regular;

/// No configuration is longer; what is was meant to be another file.
const MAX_BYTES: u64 = 1 << 20;
/// Where faults stop being counted: whoever has this many has one that repeats.
const MAX_FAULTS: usize = 50;

/// A configuration, and what it names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Loaded {
    /// The configuration.
    pub(crate) config: Config,
    /// The sites of the file that `relay.manifest` names; none where it names none.
    pub(crate) manifest: Manifest,
    /// The formats, with those of the folder that `relay.formats` names.
    pub(crate) formats: FormatFolder,
}

/// Reads the configuration from `file`, if any, with `environment` laid over it.
///
/// # Errors
/// [`Faults`]: all that can be found at once.
pub(crate) fn load(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Loaded, Faults> {
    let (name, text) = match file {
        Some(file) => (file.display().to_string(), read(file)?),
        None => ("the built-in defaults".to_owned(), String::new()),
    };
    let (environment, unreadable) = overrides::readable(environment);
    let parsed = parse(&name, &text, &environment);
    if unreadable.is_empty() {
        return parsed;
    }
    let others = parsed.err().map(|faults| faults.0).unwrap_or_default();
    Err(collected(others.into_iter().chain(unreadable).collect()))
}

fn read(file: &Path) -> Result<String, Faults> {
    let name = file.display().to_string();
    let bytes = regular::read(file, MAX_BYTES).map_err(|error| {
        Faults::from(Fault {
            place: Place::File(name.clone()),
            what: format!("can't be read: {error}"),
            hint: Some("check the path and its permissions".to_owned()),
        })
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let text =
            String::from_utf8_lossy(error.as_bytes().get(..good).unwrap_or_default()).into_owned();
        let (line, column) = line_and_column(&text, good);
        Faults::from(Fault {
            place: Place::At {
                file: name.clone(),
                line,
                column,
            },
            what: "this byte isn't UTF-8".to_owned(),
            hint: Some("save the file as UTF-8".to_owned()),
        })
    })
}

/// Reads the configuration from text. The structs say what is right: what they refuse is noted and
/// taken out, and they are asked again, until nothing is left to refuse.
pub(super) fn parse(
    name: &str,
    text: &str,
    environment: &[(String, String)],
) -> Result<Loaded, Faults> {
    let at = |span: &Range<usize>| {
        let (line, column) = line_and_column(text, span.start);
        Place::At {
            file: name.to_owned(),
            line,
            column,
        }
    };
    let (tree, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(collected(
            errors
                .into_iter()
                .map(|error| Fault {
                    place: at(&error.span().unwrap_or_default()),
                    what: error.message().trim().replace('\n', ", "),
                    hint: None,
                })
                .collect(),
        ));
    }
    let mut table = tree.into_inner();
    let mut overrides = Overrides::new(environment, text.len() + 1);
    let mut faults = overrides.lay_over(&mut table);
    let mut retried: Option<(Range<usize>, String)> = None;
    loop {
        let whole = Spanned::new(0..text.len(), table.clone());
        let error = match Config::deserialize(Deserializer::from(whole)) {
            Ok(config) if faults.is_empty() => return checked(config, &table, &overrides, &at),
            Ok(_) => return Err(collected(faults)),
            Err(error) => error,
        };
        let span = error.span().unwrap_or_default();
        if overrides.retry_as_text(&mut table, &span) {
            retried = Some((span, error.message().to_owned()));
            continue;
        }
        // A variable that fits neither way is told of as what it looks like.
        let message = match retried.take() {
            Some((before, message)) if before == span => message,
            _ => error.message().to_owned(),
        };
        let span = first_bad_element(&table, &span).unwrap_or(span);
        let path = take_out(&mut table, &span);
        let (what, hint) = reword(&message, path.as_deref().unwrap_or_default());
        let place = match overrides.name_at(&span) {
            Some(variable) => Place::Variable(variable.to_owned()),
            None => at(&span),
        };
        faults.push(Fault { place, what, hint });
        if path.is_none() || faults.len() >= MAX_FAULTS {
            return Err(collected(faults));
        }
    }
}

/// Where a whole array was refused, the span of the element that is to blame: the first that is
/// refused when it stands alone.
fn first_bad_element(table: &DeTable<'_>, span: &Range<usize>) -> Option<Range<usize>> {
    let mut table = table.clone();
    let value = value_at(&mut table, span)?;
    let DeValue::Array(elements) = value.get_ref().clone() else {
        return None;
    };
    elements.into_iter().find_map(|element| {
        let blamed = element.span();
        let mut alone = DeArray::new();
        alone.push(element);
        *value_at(&mut table, span)?.get_mut() = DeValue::Array(alone);
        let whole = Spanned::new(0..0, table.clone());
        let error = Config::deserialize(Deserializer::from(whole)).err()?;
        (error.span().as_ref() == Some(span)).then_some(blamed)
    })
}

fn checked(
    config: Config,
    table: &DeTable<'_>,
    overrides: &Overrides<'_>,
    at: &dyn Fn(&Range<usize>) -> Place,
) -> Result<Loaded, Faults> {
    let mut found = checks::contradictions(&config);
    let manifest = manifest::read(&config).map_err(|fault| found.push(fault));
    let formats = formats::read(&config).map_err(|faults| found.extend(faults));
    let faults: Vec<Fault> = found
        .into_iter()
        .map(|found| {
            let span = span_of(table, found.key).unwrap_or_default();
            let place = match overrides.name_at(&span) {
                Some(variable) => Place::Variable(variable.to_owned()),
                None => at(&span),
            };
            let what = format!("{}: {}", found.key.join("."), found.what);
            Fault {
                place,
                what,
                hint: Some(found.hint.to_owned()),
            }
        })
        .collect();
    match (manifest, formats, faults.as_slice()) {
        (Ok(manifest), Ok(formats), []) => Ok(Loaded {
            config,
            manifest,
            formats,
        }),
        _ => Err(collected(faults)),
    }
}

fn collected(mut faults: Vec<Fault>) -> Faults {
    faults.sort();
    Faults(faults)
}
