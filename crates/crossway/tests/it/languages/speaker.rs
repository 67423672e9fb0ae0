//! The examples as programs: services that answer, and callers that ask.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::program::{Ran, finish};

/// The languages that the examples are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    Node,
    Bash,
    Rust,
}

use Language::{Bash, Node, Python, Rust};

impl Language {
    pub(crate) const ALL: [Language; 4] = [Python, Node, Bash, Rust];
    /// Those whose examples do by themselves what the Rust library does for its users.
    pub(crate) const BY_HAND: [Language; 3] = [Python, Node, Bash];

    /// Those of `all` that this machine can run; of the others it is printed why not.
    #[allow(
        clippy::print_stdout,
        reason = "whoever runs the tests is told what isn't tested"
    )]
    pub(crate) fn at_hand(all: &[Language]) -> Vec<Language> {
        let runs = |language: &Language| {
            let found = language.is_at_hand();
            if !found {
                println!("left out: {language:?} isn't on this machine");
            }
            found
        };
        all.iter().copied().filter(runs).collect()
    }

    fn is_at_hand(self) -> bool {
        let works = |program: &str, arguments: &[&str]| {
            Command::new(program)
                .args(arguments)
                .output()
                .is_ok_and(|ran| ran.status.success())
        };
        match self {
            Python => {
                let found = works("python3", &["--version"]);
                assert!(
                    !found || works("python3", &["-c", "import redis"]),
                    "python3 has no package `redis`; `make tools` gets it"
                );
                found
            }
            Node => works("node", &["--version"]),
            Bash => works("bash", &["--version"]),
            Rust => true,
        }
    }

    /// The name of the site that its service is.
    pub(crate) fn site(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn service(self, url: &str, node: &str) -> Command {
        let site = self.site();
        match self {
            Python => {
                let options = ["--url", url, "--site", &site, "--node", node];
                script("python3", "python/echo_service.py", &options)
            }
            Node => script("node", "node/answer.mjs", &[url, &site, node]),
            Bash => script("bash", "bash/answer.sh", &[url, &site, node]),
            Rust => built("answer", &[url, &site]),
        }
    }

    /// What its caller says when it asks as the site `from`.
    pub(crate) async fn asks(self, url: &str, from: &str, words: &[&str]) -> Ran {
        let words = [&[url, from], words].concat();
        let command = match self {
            Python => script("python3", "python/ask.py", &words),
            Node => script("node", "node/ask.mjs", &words),
            Bash => script("bash", "bash/ask.sh", &words),
            Rust => built("ask", &words),
        };
        tokio::task::spawn_blocking(move || finish(command, ""))
            .await
            .unwrap()
    }
}

fn script(program: &str, file: &str, arguments: &[&str]) -> Command {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut command = Command::new(program);
    command.arg(examples.join(file)).args(arguments);
    command
}

/// An example of the client crate. These tests aren't of its package, so it is built here.
fn built(name: &str, arguments: &[&str]) -> Command {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let tests = std::env::current_exe().unwrap();
        let folder = tests.ancestors().nth(2).unwrap().to_path_buf();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut build = Command::new(cargo);
        build
            .args(["build", "--quiet", "--package", "crossway-client"])
            .args(["--examples", "--target-dir"])
            .arg(folder.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        // What cargo says of this package would have it build the dependencies again.
        for (name, _) in std::env::vars_os() {
            let told = [
                "CARGO_PKG_",
                "CARGO_MANIFEST_",
                "CARGO_BIN_",
                "CARGO_CRATE_",
            ];
            if told
                .iter()
                .any(|prefix| name.to_string_lossy().starts_with(prefix))
            {
                build.env_remove(name);
            }
        }
        if folder.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "the examples are built");
        folder
    });
    let mut command = Command::new(folder.join("examples").join(name));
    command.args(arguments);
    command
}

/// A running service, killed with the value.
pub(crate) struct Service(pub(crate) Child);

impl Service {
    /// Starts it as the process `node` of its site, and waits until it says that it answers.
    pub(crate) fn start(language: Language, url: &str, node: &str) -> Service {
        let mut command = language.service(url, node);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let site = language.site();
        assert!(line.starts_with(&format!("{site} answers")), "{line}");
        Service(child)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
