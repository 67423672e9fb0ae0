//! What is printed, and where.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::Value;

/// Prints answers to standard output, for people or for programs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    json: bool,
}

impl Output {
    pub(super) fn new(json: bool) -> Output {
        Output { json }
    }

    pub(super) fn is_json(self) -> bool {
        self.json
    }

    /// Prints the object, or what says the same to people; that may be nothing.
    pub(super) fn answer(self, object: &Value, text: impl Display) -> io::Result<()> {
        let text = if self.json {
            object.to_string()
        } else {
            text.to_string()
        };
        let mut out = io::stdout().lock();
        if !text.is_empty() {
            writeln!(out, "{}", text.trim_end_matches('\n'))?;
        }
        out.flush()
    }
}

/// One line on standard error for each line of the reason.
pub(super) fn complain(reason: &impl Display) {
    let mut err = io::stderr().lock();
    for line in reason.to_string().lines() {
        // Where standard error is gone there is nowhere left to say so.
        let _ = writeln!(err, "crossway: {line}");
    }
}

/// Help and version to standard output; a wrong usage as one line on standard error.
pub(super) fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let what = text.split("\n\nUsage:").next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(what);
    let paragraphs = what
        .split("\n\n")
        .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let line = paragraphs.collect::<Vec<_>>().join("; ");
    complain(&format!("{line}; see crossway help"));
    ExitCode::from(2)
}
