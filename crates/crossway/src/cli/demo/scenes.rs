//! What is answered, and what is refused by a rule.

use std::time::Instant;

use crossway_client::CallError;
use serde_json::{Value, json};

use super::cast::PATIENCE;
use super::{Broken, Scene, Stage, ms};

/// One service asks another.
pub(super) async fn answered(stage: &Stage) -> Result<Scene, Broken> {
    ask(
        stage,
        "a command is answered",
        "billing",
        "charge",
        &json!({"cents": 1250}),
        &json!({"charged": 1250}),
    )
    .await
}

/// The same, and whoever answers is written in another language.
pub(super) async fn answered_by_python(stage: &Stage) -> Result<Scene, Broken> {
    let title = "a service in Python, with the package `redis` alone";
    if stage.python.is_none() {
        return Ok(Scene::new(title, vec![super::python::MISSING.to_owned()]));
    }
    ask(
        stage,
        title,
        "echo",
        "sum",
        &json!([1, 2, 3]),
        &json!({"sum": 6}),
    )
    .await
}

async fn ask(
    stage: &Stage,
    title: &'static str,
    target: &str,
    command: &str,
    params: &Value,
    expected: &Value,
) -> Result<Scene, Broken> {
    let since = Instant::now();
    let reply = stage
        .cast
        .shop
        .call(target, command, params, PATIENCE)
        .await
        .map_err(|error| Broken::new(format!("{target} {command}: {error}")))?;
    let took = since.elapsed();
    if reply.json::<Value>().ok().as_ref() != Some(expected) {
        return Err(Broken::new(format!(
            "{target} answered {}, not {expected}",
            reply.text()
        )));
    }
    Ok(Scene::new(
        title,
        vec![
            format!("shop asked {target}: {command} {params}"),
            format!("{} answered: {expected}, after {}", reply.site(), ms(took)),
        ],
    ))
}

/// A rule forbids one command, and says why.
pub(super) async fn denied(stage: &mut Stage) -> Result<Scene, Broken> {
    let reason = "refunds need a person";
    let rule = [
        "policy",
        "set",
        "shop",
        "billing",
        "deny",
        "--commands",
        "refund",
        "--reason",
        reason,
    ];
    stage.type_in(&rule).await?;
    let since = Instant::now();
    let ended = stage
        .cast
        .shop
        .call("billing", "refund", &json!({"cents": 1250}), PATIENCE)
        .await;
    let took = since.elapsed();
    let (code, message) = match ended {
        Err(CallError::Refused { code, message }) => (code, message),
        Err(error) => return Err(Broken::new(format!("a forbidden command: {error}"))),
        Ok(_) => return Err(Broken::new("a forbidden command was answered".to_owned())),
    };
    if code != "RELAY.DENIED" || !message.contains("shop:billing") || !message.contains(reason) {
        return Err(Broken::new(format!(
            "a forbidden command was refused with {code}: {message}"
        )));
    }
    stage.never_reached("billing", "refund").await?;
    Ok(Scene::new(
        "a rule refuses one command",
        vec![
            format!(
                "typed: crossway policy set shop billing deny --commands refund --reason '{reason}'"
            ),
            "shop asked billing: refund {\"cents\":1250}".to_owned(),
            format!(
                "the daemon refused: {code}, {message}, after {}; billing never saw it",
                ms(took)
            ),
        ],
    ))
}
