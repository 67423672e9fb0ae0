//! Carries messages across borders: between services, between nodes, between realms.

mod admin;
mod changes;
mod cli;
mod config;
mod identity;
mod logging;
mod planes;
mod regular;
mod reload;
mod signals;
mod traces;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
