//! The command line: one file for each command, and what they share.
//!
//! Exit status: 0 yes or done, 1 no, 2 where no answer could be given, with the reason on standard
//! error. With `--json` standard output holds one JSON object, or nothing when the status is 2.

mod acl;
mod argument;
mod banner;
mod check;
mod dead;
mod demo;
mod format;
mod inspect;
mod output;
mod policy;
mod schema;
mod send;
mod sites;
mod store;
mod tail;
mod up;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use crossway_core::address::{Environment, Keyspace};

use crate::config::{Config, Faults, StoreUrl};
use crate::reload::Source;
use output::Output;

/// Carries messages between services: whoever sends names a target and nothing else.
#[derive(Debug, Parser)]
#[command(
    name = "crossway",
    version,
    propagate_version = true,
    arg_required_else_help = false
)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
struct Common {
    /// Print one JSON object and nothing else.
    #[arg(long, global = true)]
    json: bool,
    /// The configuration file; without it the defaults, and what the environment says.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The store's URL; without it what the configuration says.
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the daemon.
    Up(up::Up),
    /// Show what it does: a daemon of its own, services, refusals, a kill.
    Demo(demo::Demo),
    /// Validate a configuration file.
    Check(check::Check),
    /// Print the JSON Schema of the configuration.
    Schema,
    /// Send a command to a site and print its reply.
    Send(send::Send),
    /// Follow what passes through the streams of sites.
    Tail(tail::Tail),
    /// See and change who may send what to whom.
    #[command(subcommand)]
    Policy(policy::Policy),
    /// See and change which sites are registered.
    Sites(sites::Sites),
    /// See and set the access rules of the store's users.
    #[command(subcommand)]
    Acl(acl::Acl),
    /// See what could not be delivered, and why.
    #[command(subcommand)]
    Dead(dead::Dead),
    /// Look into files and values without a store.
    #[command(subcommand)]
    Inspect(inspect::Inspect),
}

/// How a command that gave an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
}

/// Why no answer could be given.
#[derive(Debug, thiserror::Error)]
enum CliError {
    /// Something is wrong with what was given, or with what it refers to.
    #[error("{0}")]
    Input(String),
    /// The configuration is faulty.
    #[error(transparent)]
    Config(#[from] Faults),
    /// The store.
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// The client.
    #[error(transparent)]
    Client(#[from] crossway_client::ClientError),
    /// The daemon.
    #[error(transparent)]
    Up(#[from] up::UpError),
    /// Standard output.
    #[error("the answer can't be written: {0}")]
    Output(#[from] std::io::Error),
}

impl Common {
    fn source(&self) -> Source {
        Source {
            file: self.config.clone(),
            data_dir: None,
        }
    }

    fn configuration(&self) -> Result<Config, CliError> {
        Ok(self.source().read()?.config)
    }

    fn store_url(&self, config: &Config) -> Result<StoreUrl, CliError> {
        let url = match &self.url {
            Some(url) => {
                StoreUrl::parse(url).map_err(|error| CliError::Input(format!("--url: {error}")))?
            }
            None => config.store_url(),
        };
        if url.is_cluster() {
            let what = "the command line doesn't speak to a cluster yet; what it would do can be done with redis-cli -c";
            return Err(CliError::Input(format!("{}: {what}", url.place())));
        }
        Ok(url)
    }
}

/// Runs the command that the arguments name.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error),
    };
    let output = Output::new(cli.common.json);
    let ended = match cli.command {
        Command::Up(up) => runtime(true).and_then(|on| on.block_on(up.run(&cli.common, output))),
        Command::Demo(demo) => {
            runtime(true).and_then(|on| on.block_on(demo.run(&cli.common, output)))
        }
        Command::Check(check) => check.run(output),
        Command::Schema => schema::run(output),
        Command::Inspect(inspect) => inspect.run(&cli.common, output),
        Command::Send(send) => {
            runtime(false).and_then(|on| on.block_on(send.run(&cli.common, output)))
        }
        Command::Tail(tail) => {
            runtime(false).and_then(|on| on.block_on(tail.run(&cli.common, output)))
        }
        Command::Policy(policy) => {
            runtime(false).and_then(|on| on.block_on(policy.run(&cli.common, output)))
        }
        Command::Acl(acl) => {
            runtime(false).and_then(|on| on.block_on(acl.run(&cli.common, output)))
        }
        Command::Dead(dead) => {
            runtime(false).and_then(|on| on.block_on(dead.run(&cli.common, output)))
        }
        Command::Sites(sites) => {
            runtime(false).and_then(|on| on.block_on(sites.run(&cli.common, output)))
        }
    };
    match ended {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        // Whoever read our output has gone, as `head` does: there is nobody to tell.
        Err(CliError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            output.refuse(&error);
            ExitCode::from(2)
        }
    }
}

/// The environment that `--env` names.
fn known_environment<'k>(keys: &'k Keyspace, name: &str) -> Result<&'k Environment, CliError> {
    keys.environment(name).ok_or_else(|| {
        let known = keys.environments().iter().map(Environment::as_str);
        let known = known.collect::<Vec<_>>().join(", ");
        CliError::Input(format!("--env {name:?} isn't one of {known}"))
    })
}

fn runtime(on_all_cores: bool) -> Result<tokio::runtime::Runtime, CliError> {
    let mut builder = match on_all_cores {
        true => tokio::runtime::Builder::new_multi_thread(),
        false => tokio::runtime::Builder::new_current_thread(),
    };
    builder
        .enable_all()
        .build()
        .map_err(|error| CliError::Input(format!("the runtime can't start: {error}")))
}
