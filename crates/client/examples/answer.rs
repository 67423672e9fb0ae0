//! Answers `echo` and `sum` until Ctrl-C: `answer URL SITE`.
//!
//! `cargo run -p crossway-client --example answer -- redis://127.0.0.1:6390 billing`

#![allow(clippy::print_stdout)] // An example talks to whoever runs it.

use std::error::Error;

use crossway_client::{Client, Command, Failure};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, site] = arguments.as_slice() else {
        return Err("usage: answer URL SITE".into());
    };
    let client = Client::connect(url, site, "production").await?;
    let serving = client.serve(answer).await?;
    println!("{site} answers; Ctrl-C ends it");
    tokio::signal::ctrl_c().await?;

    // What is being worked on is finished and answered first.
    serving.stop().await;
    client.close().await;
    Ok(())
}

async fn answer(command: Command) -> Result<Value, Failure> {
    match command.name() {
        "echo" => command.params(),
        "sum" => {
            let numbers: Vec<f64> = command.params()?;
            Ok(json!({"sum": numbers.iter().sum::<f64>()}))
        }
        other => Err(Failure::new(
            "UNKNOWN_COMMAND",
            format!("{other} isn't one of echo, sum"),
        )),
    }
}
