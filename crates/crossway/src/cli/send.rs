//! `crossway send SITE COMMAND [PARAMS] --from SITE`.

use std::time::Duration;

use clap::Args;
use crossway_client::{CallError, Client, Reply};
use crossway_core::address::SiteId;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::output::{Output, complain};
use super::{Answer, CliError, Common, argument, known_environment};
use crate::config::Config;

/// What to send, to whom, as whom.
#[derive(Debug, Args)]
pub(super) struct Send {
    /// The target: a site, an entity, a stream key, or an address of another plane.
    target: String,
    /// The command.
    command: String,
    /// Its parameters as JSON; `@FILE` takes them from a file, `-` from standard input.
    #[arg(default_value = "{}", allow_hyphen_values = true)]
    params: String,
    /// The site that sends.
    #[arg(long, value_name = "SITE")]
    from: String,
    /// The environment.
    #[arg(long, default_value = "production")]
    env: String,
    /// How long to wait for the reply: a number with ms, s or m.
    #[arg(long, default_value = "10s", value_parser = duration)]
    timeout: Duration,
}

impl Send {
    pub(super) async fn run(self, common: &Common, output: Output) -> Result<Answer, CliError> {
        for (what, text) in [("the target", &self.target), ("the command", &self.command)] {
            if text.is_empty() {
                return Err(CliError::Input(format!("{what} is empty")));
            }
        }
        let params = argument::text("PARAMS", &self.params)?;
        let params = RawValue::from_string(params)
            .map_err(|error| CliError::Input(format!("PARAMS isn't JSON: {error}")))?;
        let config = common.configuration()?;
        self.possible(&config)?;
        let client = self.connect(common, &config).await?;
        let ended = client
            .call(&self.target, &self.command, &params, self.timeout)
            .await;
        client.close().await;
        match ended {
            Ok(reply) => {
                output.answer(&answered(&reply)?, reply.text())?;
                Ok(Answer::Yes)
            }
            Err(error @ (CallError::Store(_) | CallError::Input { .. })) => {
                Err(CliError::Input(error.to_string()))
            }
            Err(error) => {
                output.answer(&unanswered(&error), "")?;
                complain(&error);
                Ok(Answer::No)
            }
        }
    }

    /// Whether the daemon of this configuration could carry anything from there.
    fn possible(&self, config: &Config) -> Result<(), CliError> {
        let keys = config
            .relay
            .keyspace()
            .map_err(|error| CliError::Input(error.to_string()))?;
        let from = SiteId::parse_spelled(&self.from)
            .map_err(|error| CliError::Input(format!("--from {:?}: {error}", self.from)))?;
        if from == *keys.namespace() {
            return Err(CliError::Input(format!(
                "--from {from} is the daemon itself; name a service"
            )));
        }
        known_environment(&keys, &self.env).map(drop)
    }

    async fn connect(&self, common: &Common, config: &Config) -> Result<Client, CliError> {
        let url = common.store_url(config)?;
        let client = Client::builder()
            .namespace(config.relay.namespace.site().as_str())
            .keyspace(config.relay.keyspace.environment().as_str())
            .hash_tags(config.relay.hash_tags)
            .node("crossway-send")
            .connect(url.expose(), &self.from, &self.env)
            .await?;
        Ok(client)
    }
}

/// A reply as it is printed for programs.
#[derive(Serialize)]
struct Answered<'r> {
    ok: bool,
    result: Box<RawValue>,
    site: &'r str,
    node: &'r str,
}

fn answered(reply: &Reply) -> Result<Answered<'_>, CliError> {
    let result = as_it_came(reply.text())
        .map_err(|error| CliError::Input(format!("the reply can't be shown: {error}")))?;
    Ok(Answered {
        ok: true,
        result,
        site: reply.site(),
        node: reply.node(),
    })
}

/// JSON text with its digits, its order and its repetitions, on one line; other text as a string.
fn as_it_came(text: &str) -> Result<Box<RawValue>, serde_json::Error> {
    if serde_json::from_str::<&RawValue>(text).is_err() {
        return to_raw_value(text);
    }
    let (mut quoted, mut escaped) = (false, false);
    let line = text.chars().filter(|&c| {
        match (quoted, escaped, c) {
            (true, true, _) => escaped = false,
            (true, false, '\\') => escaped = true,
            (_, _, '"') => quoted = !quoted,
            _ => {}
        }
        quoted || !c.is_ascii_whitespace()
    });
    RawValue::from_string(line.collect())
}

fn unanswered(error: &CallError) -> Value {
    let code = match error {
        CallError::Timeout { .. } => "TIMEOUT",
        CallError::Unknown(_) => "UNKNOWN",
        other => other.code().unwrap_or("FAILED"),
    };
    let outcome = match error {
        CallError::Refused { .. } => "refused",
        CallError::Failed { .. } => "failed",
        CallError::Timeout { .. } => "timeout",
        _ => "unknown",
    };
    let message = match error {
        CallError::Refused { message, .. } | CallError::Failed { message, .. } => message.clone(),
        other => other.to_string(),
    };
    let mut object = json!({"ok": false, "outcome": outcome, "code": code, "message": message});
    if let (CallError::Timeout { relayed }, Some(fields)) = (error, object.as_object_mut()) {
        fields.insert("relayed".to_owned(), Value::Bool(*relayed));
    }
    object
}

/// The longest that a person waits for one reply.
const LONGEST: Duration = Duration::from_secs(60 * 60);

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits
        .parse()
        .map_err(|_| "a duration is a whole number with ms, s or m".to_owned())?;
    let duration = match text.get(digits.len()..).unwrap_or_default() {
        "ms" => Duration::from_millis(number),
        "s" | "" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        unit => return Err(format!("{unit:?} is no unit; use ms, s or m")),
    };
    if duration.is_zero() || duration > LONGEST {
        return Err("a timeout is more than nothing and at most 60m".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_keeps_its_digits_order_and_repetitions() {
        let shown = |text| as_it_came(text).unwrap().get().to_owned();
        for exact in [
            r#"{"z":12345678901234567890123,"a":1.10,"z":1e999}"#,
            r#"" \" \\ ""#,
            "null",
        ] {
            assert_eq!(shown(exact), exact);
        }
        assert_eq!(
            shown("{ \"b\" :\n\t[1, \"x \\\" y\"] }\n"),
            r#"{"b":[1,"x \" y"]}"#
        );
        assert_eq!(shown("not\nJSON"), r#""not\nJSON""#);
        assert_eq!(shown(""), r#""""#);
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("3"), Ok(Duration::from_secs(3)));
        for bad in [
            "",
            "s",
            "1h",
            "-1s",
            "1.5s",
            "0s",
            "99999999999999999999s",
            "9999999999999999999m",
            "ü",
        ] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }
}
