//! What is printed, and where.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

use super::CliError;

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

    /// Why there is no answer: for programs as one line whatever it is, for people as a line for each
    /// fault of a configuration.
    pub(super) fn refuse(self, error: &CliError) {
        match error {
            CliError::Config(faults) if !self.json => faults.each().for_each(complain),
            error => complain(error),
        }
    }

    /// Prints the object, or what says the same to people; that may be nothing.
    pub(super) fn answer(self, object: &impl Serialize, text: impl Display) -> io::Result<()> {
        let text = if self.json {
            serde_json::to_string(object)?
        } else {
            Shown(&text.to_string()).to_string()
        };
        let mut out = io::stdout().lock();
        if !text.is_empty() {
            writeln!(out, "{}", text.trim_end_matches('\n'))?;
        }
        out.flush()
    }
}

/// A reason as one line on standard error.
pub(super) fn complain(reason: &impl Display) {
    let reason = reason.to_string();
    let lines: Vec<&str> = reason
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    // Where standard error is gone there is nowhere left to say so.
    let _ = writeln!(
        io::stderr().lock(),
        "crossway: {}",
        Shown(&lines.join("; "))
    );
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

/// Text from elsewhere, fit for a terminal: what would move the cursor, recolour or reorder what is
/// shown is written as an escape. Lines and tabs stay.
struct Shown<'t>(&'t str);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            let reorders = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if reorders || (c.is_control() && !matches!(c, '\n' | '\t')) {
                write!(f, "{}", c.escape_default())?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Shown;

    #[test]
    fn nothing_that_is_shown_can_steer_a_terminal() {
        assert_eq!(
            Shown("ok\x1b[2J\r\u{9b}31m\u{202e}\tü\n🦀").to_string(),
            "ok\\u{1b}[2J\\r\\u{9b}31m\\u{202e}\tü\n🦀"
        );
    }
}
