//! What is wrong with a configuration, where, and what would be right.

use std::fmt;

/// Where a fault is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A whole file.
    File(String),
    /// A place in a file; line and column count from one, columns in characters.
    At {
        file: String,
        line: usize,
        column: usize,
    },
    /// A variable of the environment.
    Variable(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(file) => f.write_str(file),
            Place::At { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Place::Variable(name) => f.write_str(name),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// All that was found wrong, in the order of the file; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Faults(pub(super) Vec<Fault>);

impl Faults {
    /// Each of them, in that order.
    pub(crate) fn each(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Faults {
        Faults(vec![fault])
    }
}

/// The parser's words in ours: `key` is what stands at the place, dotted.
pub(super) fn reword(message: &str, key: &str) -> (String, Option<String>) {
    let message = message.trim().replace('\n', ", ");
    let quoted = |text: &str| {
        text.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for (kind, noun) in [("unknown field ", "key"), ("unknown variant ", "value")] {
        let Some(rest) = message.strip_prefix(kind) else {
            continue;
        };
        let (found, known) = rest.split_once(", expected").unwrap_or((rest, ""));
        let found = found.trim_matches('`');
        let known = quoted(known);
        let what = match noun {
            "key" => format!("unknown key {key}"),
            _ => format!("{key} can't be {found:?}"),
        };
        let hint = match nearest(found, &known) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("known {noun}s: {}", known.join(", ")),
        };
        return (what, Some(hint));
    }
    if key.is_empty() {
        (message, None)
    } else {
        (format!("{key}: {message}"), None)
    }
}

/// The known word that was most likely meant.
fn nearest<'a>(found: &str, known: &'a [String]) -> Option<&'a str> {
    known
        .iter()
        .map(|word| (strsim::damerau_levenshtein(found, word), word))
        .min()
        .filter(|(distance, word)| *distance <= word.len().max(3) / 3)
        .map(|(_, word)| word.as_str())
}
