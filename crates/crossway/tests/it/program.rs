//! Runs the program.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Standard output as one JSON object and nothing else.
    pub(crate) fn object(&self) -> Value {
        assert!(
            self.out.ends_with('\n') && self.out.lines().count() == 1,
            "one line: {self:?}"
        );
        let value: Value = serde_json::from_str(&self.out).unwrap();
        assert!(value.is_object(), "{value}");
        value
    }

    /// Bad input: status 2, one reason on standard error, nothing on standard output.
    #[track_caller]
    pub(crate) fn refused(&self) -> &str {
        assert_eq!(self.status, 2, "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        self.err.trim_end()
    }
}

/// The program with these arguments and nothing of ours in its environment.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crossway"));
    command.args(arguments);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CROSSWAY_")) {
        command.env_remove(name);
    }
    command
}

pub(crate) fn run(arguments: &[&str]) -> Ran {
    finish(program(arguments), "")
}

pub(crate) fn run_with(arguments: &[&str], stdin: &str) -> Ran {
    finish(program(arguments), stdin)
}

pub(crate) fn finish(mut command: Command, stdin: &str) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that doesn't read its input closes it.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let ended = child.wait_with_output().unwrap();
    Ran {
        status: ended.status.code().unwrap_or(-1),
        out: String::from_utf8(ended.stdout).unwrap(),
        err: String::from_utf8(ended.stderr).unwrap(),
    }
}
