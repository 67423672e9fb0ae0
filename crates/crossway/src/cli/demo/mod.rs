//! `crossway demo`: a daemon of its own on the embedded store, services that speak to each other,
//! and what becomes of those who shouldn't. It fails where anything isn't as promised.

mod burst;
mod cast;
mod daemon;
mod forgeries;
mod languages;
mod python;
mod scenes;
mod table;

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use self::cast::{Cast, Desk};
use self::daemon::Daemon;
use self::python::Python;
use super::output::{Output, complain};
use super::up::UpError;
use super::{Answer, CliError, Common};
use crate::signals::Signals;

/// How the demonstration ends.
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// End when everything was shown, instead of leaving the daemon up.
    #[arg(long)]
    once: bool,
}

/// Something isn't as promised.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Broken(String);

impl Broken {
    fn new(what: String) -> Broken {
        Broken(what)
    }
}

/// What was shown.
struct Scene {
    title: &'static str,
    lines: Vec<String>,
}

impl Scene {
    fn new(title: &'static str, lines: Vec<String>) -> Scene {
        Scene { title, lines }
    }
}

/// Everything that takes part.
struct Stage {
    daemon: Daemon,
    /// How long the daemon took until it was ready.
    ready: Duration,
    cast: Cast,
    desk: Desk,
    python: Option<Python>,
}

impl Demo {
    pub(super) async fn run(self, common: &Common, output: Output) -> Result<Answer, CliError> {
        if common.url.is_some() || common.config.is_some() {
            let what = "demo takes no --url and no --config; it runs a daemon of its own";
            return Err(CliError::Input(what.to_owned()));
        }
        let mut signals = Signals::listen().map_err(UpError::Signals)?;
        let folder = tempfile::Builder::new()
            .prefix("crossway-demo-")
            .tempdir()
            .map_err(|error| CliError::Input(format!("a temporary folder: {error}")))?;
        let played = tokio::select! {
            played = self.play(folder.path(), output) => played,
            // What was started ends with what holds it.
            _ = signals.next() => Err(Failed::Interrupted),
        };
        let ended = match played {
            Ok(stage) if self.once => stage.stop().await,
            Ok(stage) => stage.stay(&mut signals).await,
            Err(failed) => Err(failed),
        };
        match ended {
            Ok(()) => Ok(Answer::Yes),
            Err(Failed::Interrupted) => {
                complain(&Failed::Interrupted);
                Ok(Answer::No)
            }
            Err(Failed::Output(error)) => Err(error.into()),
            Err(Failed::Broken(broken)) => {
                let log = folder.keep().join(daemon::LOG);
                complain(&format!("not as promised: {broken}"));
                complain(&format!("what the daemon logged is in {}", log.display()));
                Ok(Answer::No)
            }
        }
    }

    /// Shows one thing after the other.
    async fn play(&self, folder: &Path, output: Output) -> Result<Stage, Failed> {
        let mut shown = Shown {
            output,
            scenes: Vec::new(),
        };
        let mut stage = Stage::set(folder).await?;
        shown.say(Scene::new(
            "a daemon with everything embedded",
            vec![
                format!(
                    "process {}, ready after {}",
                    stage.daemon.process(),
                    ms(stage.ready)
                ),
                format!(
                    "store {}, admin http://{}",
                    stage.daemon.url(),
                    stage.daemon.admin
                ),
            ],
        ))?;
        shown.say(scenes::answered(&stage).await?)?;
        shown.say(scenes::answered_by_python(&stage).await?)?;
        shown.say(languages::understood(&mut stage).await?)?;
        shown.say(scenes::denied(&mut stage).await?)?;
        shown.say(forgeries::source(&mut stage).await?)?;
        shown.say(forgeries::reply(&mut stage).await?)?;
        shown.say(table::crossed(&mut stage).await?)?;
        shown.say(burst::survived(&mut stage).await?)?;
        shown.end(&stage, self.once)?;
        Ok(stage)
    }
}

/// Why it ended early.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error(transparent)]
    Output(#[from] std::io::Error),
    #[error("interrupted before everything was shown")]
    Interrupted,
}

impl Stage {
    /// Starts all that take part.
    async fn set(folder: &Path) -> Result<Stage, Broken> {
        let since = Instant::now();
        let daemon = Daemon::start(folder).await?;
        let (url, ready) = (daemon.url(), since.elapsed());
        Ok(Stage {
            ready,
            cast: Cast::start(&url).await?,
            desk: Desk::open(&url).await?,
            python: Python::start(folder, &url).await?,
            daemon,
        })
    }

    /// Keeps everything up until told to stop.
    async fn stay(mut self, signals: &mut Signals) -> Result<(), Failed> {
        tokio::select! {
            _ = signals.next() => self.stop().await,
            ended = self.daemon.ended() => Err(ended.into()),
        }
    }

    /// Ends all of them, services first.
    async fn stop(self) -> Result<(), Failed> {
        self.cast.stop().await;
        if let Some(python) = self.python {
            python.stop().await;
        }
        Ok(self.daemon.stop().await?)
    }

    /// Runs a command of this program against the demonstration's store.
    async fn type_in(&self, arguments: &[&str]) -> Result<(), Broken> {
        let failed = |what: String| Broken::new(format!("{}: {what}", arguments.join(" ")));
        let mut command = daemon::program()?;
        command
            .args(arguments)
            .args(["--url", &self.daemon.url(), "--json"]);
        let ran = tokio::time::timeout(cast::PATIENCE, command.output()).await;
        match ran {
            Ok(Ok(ran)) if ran.status.success() => Ok(()),
            Ok(Ok(ran)) => Err(failed(
                String::from_utf8_lossy(&ran.stderr).trim().to_owned(),
            )),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(format!("no end after {:?}", cast::PATIENCE))),
        }
    }

    /// Fails where a command lies in a site's stream.
    async fn never_reached(&mut self, site: &str, command: &str) -> Result<(), Broken> {
        let arrived = self.desk.all(site).await?;
        let reached = arrived
            .iter()
            .any(|(_, entry)| entry.get("c").is_some_and(|name| name == command));
        match reached {
            true => Err(Broken::new(format!("{command} reached {site}"))),
            false => Ok(()),
        }
    }
}

/// What has been shown so far.
struct Shown {
    output: Output,
    scenes: Vec<Value>,
}

impl Shown {
    fn say(&mut self, scene: Scene) -> std::io::Result<()> {
        self.scenes
            .push(json!({"title": scene.title, "lines": scene.lines}));
        if self.output.is_json() {
            return Ok(());
        }
        let lines: String = scene
            .lines
            .iter()
            .map(|line| format!("   {line}\n"))
            .collect();
        let text = format!("{}. {}\n{lines}", self.scenes.len(), scene.title);
        self.output.answer(&Value::Null, text)
    }

    /// The last word: what is up, and what to type next.
    fn end(self, stage: &Stage, once: bool) -> std::io::Result<()> {
        let (url, admin) = (stage.daemon.url(), stage.daemon.admin);
        let object = json!({"ok": true, "scenes": self.scenes, "store": url, "admin": format!("http://{admin}")});
        if once {
            return self.output.answer(&object, "\nAll as promised.");
        }
        let program = std::env::args().next().unwrap_or_default();
        let mut text = format!(
            "\nAll as promised. The daemon and its services stay up until Ctrl-C.\n\
             \x20  admin     http://{admin}/metrics, /healthz, /readyz\n\
             In another terminal:\n\
             \x20  ask       {program} send billing charge '{{\"cents\": 5}}' --from shop --url {url}\n"
        );
        if stage.python.is_some() {
            text.push_str(&format!(
                "   ask       {program} send echo sum '[1, 2, 3]' --from shop --url {url}\n"
            ));
        }
        text.push_str(&format!(
            "   rules     {program} policy list --url {url}\n   watch     {program} tail --url {url}"
        ));
        self.output.answer(&object, text)
    }
}

/// A span of time, to be read by people.
fn ms(time: Duration) -> String {
    match time.as_secs_f64() {
        long if long >= 1.0 => format!("{long:.1} s"),
        short => format!("{:.1} ms", short * 1000.0),
    }
}
