//! Translating what a message carries, where sender and receiver speak different formats.
//!
//! It never holds a message up: what can't be translated goes on as it came, and is counted.

use bytes::Bytes;
use crossway_core::format::Formats;
use serde::{Deserialize, Serialize};

/// The formats of the two ends of a relay: the answer is translated the other way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Languages {
    /// What the sender's parameters were written in.
    #[serde(rename = "s")]
    pub(crate) sender: String,
    /// What the receiver was given.
    #[serde(rename = "r")]
    pub(crate) receiver: String,
}

/// What became of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Translation {
    /// Both ends speak the same, or it isn't known what they speak.
    Unneeded,
    /// The body in the other format.
    Done(Bytes, Languages),
    /// It goes on as it came, for this reason.
    Failed(String),
}

impl Translation {
    /// Translates the parameters of a command into its receiver's `native` format, where that is
    /// declared and the sender's is recognised.
    pub(crate) fn of_parameters(
        formats: &Formats,
        native: Option<&str>,
        parameters: Option<&Bytes>,
    ) -> Translation {
        let (Some(native), Some(parameters)) = (native, parameters) else {
            return Translation::Unneeded;
        };
        let Some(spoken) = formats.detect(parameters).best else {
            return Translation::Unneeded;
        };
        if spoken.name() == native {
            return Translation::Unneeded;
        }
        let languages = Languages {
            sender: spoken.name().to_owned(),
            receiver: native.to_owned(),
        };
        match formats.convert(&languages.sender, &languages.receiver, parameters) {
            Ok(translated) => Translation::Done(translated.into(), languages),
            Err(reason) => Translation::Failed(format!(
                "{} to {}: {reason}",
                languages.sender, languages.receiver
            )),
        }
    }

    /// Translates the result of an answer back into the format of the command that it answers.
    pub(crate) fn of_result(
        formats: &Formats,
        languages: Option<&Languages>,
        result: Option<&Bytes>,
    ) -> Translation {
        let (Some(languages), Some(result)) = (languages, result) else {
            return Translation::Unneeded;
        };
        match formats.convert(&languages.receiver, &languages.sender, result) {
            Ok(translated) => Translation::Done(translated.into(), languages.clone()),
            Err(reason) => Translation::Failed(format!(
                "{} back to {}: {reason}",
                languages.receiver, languages.sender
            )),
        }
    }

    /// The body that takes the place of what came, if any.
    pub(crate) fn body(&self) -> Option<Bytes> {
        match self {
            Translation::Done(body, _) => Some(body.clone()),
            Translation::Unneeded | Translation::Failed(_) => None,
        }
    }

    /// The formats that it was between, where it was done.
    pub(crate) fn languages(&self) -> Option<&Languages> {
        match self {
            Translation::Done(_, languages) => Some(languages),
            Translation::Unneeded | Translation::Failed(_) => None,
        }
    }
}
