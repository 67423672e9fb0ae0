//! Asks a service: `ask URL SITE TARGET COMMAND [PARAMS]`.
//!
//! `cargo run -p crossway-client --example ask -- redis://127.0.0.1:6390 shop billing echo '{"a":1}'`

#![allow(clippy::print_stdout, clippy::print_stderr)] // An example talks to whoever runs it.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use crossway_client::{CallError, Client};
use serde_json::value::RawValue;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, site, target, command, rest @ ..] = arguments.as_slice() else {
        return Err("usage: ask URL SITE TARGET COMMAND [PARAMS]".into());
    };
    let params = RawValue::from_string(rest.first().map_or("{}", String::as_str).to_owned())?;

    let client = Client::connect(url, site, "production").await?;
    let asked = client
        .call(target, command, &params, Duration::from_secs(10))
        .await;
    client.close().await;
    let failed = match asked {
        Ok(reply) => {
            println!("{} answered: {}", reply.site(), reply.text());
            return Ok(ExitCode::SUCCESS);
        }
        // Not let through: asking again changes nothing until the rules do.
        Err(CallError::Refused { code, message }) => format!("refused, {code}: {message}"),
        Err(CallError::Failed { message, .. }) => format!("{target} couldn't: {message}"),
        // It may have been carried out. Only the program knows whether asking twice is safe.
        Err(CallError::Timeout { relayed: true } | CallError::Unknown(_)) => {
            "perhaps done; look before asking again".to_owned()
        }
        Err(error) => return Err(error.into()),
    };
    eprintln!("{failed}");
    Ok(ExitCode::FAILURE)
}
