//! Why a definition, a registration or a translation is refused.

/// A definition is faulty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", if pointer.is_empty() { "the definition" } else { pointer })]
pub struct DefinitionError {
    /// Where, as a JSON pointer; empty for the whole.
    pub pointer: String,
    /// What is wrong there.
    pub reason: String,
}

/// A definition can't be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The name belongs to a format that ships.
    #[error("format {0} is built in: give the definition another name")]
    BuiltIn(String),
    /// There are as many formats as may be.
    #[error("there are {0} formats already, which is the most: take one out first")]
    Full(usize),
}

/// Data can't be converted. None of the variants has a value of the message in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// There is no such format.
    #[error("format {name:?} isn't known; known are {known}")]
    UnknownFormat {
        /// What was asked for, cut to a readable length.
        name: String,
        /// All names.
        known: String,
    },
    /// The data isn't in the format that it is said to be in.
    #[error("the data isn't {format}: {reason}")]
    NotInFormat {
        /// The format.
        format: String,
        /// What is wrong, and at which byte.
        reason: String,
    },
    /// The data is what it should be, and the other format has no form for it.
    #[error("{from} can't become {to}: {}{reason}", field.as_ref().map(|field| format!("field {field:?}: ")).unwrap_or_default())]
    Translation {
        /// The format of the data.
        from: String,
        /// The wanted one.
        to: String,
        /// The field that fails, where it is a single one.
        field: Option<String>,
        /// Why.
        reason: String,
    },
}
