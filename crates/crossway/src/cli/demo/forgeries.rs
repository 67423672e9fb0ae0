//! A site that speaks in another's name, and one that answers for another.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cast::{PATIENCE, stream};
use super::{Broken, Scene, Stage, ms};

/// Counts entries that claimed another source than their stream.
const CLAIMS: &str = "crossway_relay_forged_sources_total";
/// Counts answers to a relay that went to somebody else.
const FOREIGN: &str = "crossway_relay_entries_total{outcome=\"reply_foreign\"}";
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// `mallory` may not charge anybody, and claims to be `shop`, which may.
pub(super) async fn source(stage: &mut Stage) -> Result<Scene, Broken> {
    let reason = "no customer of ours";
    let rule = [
        "policy", "set", "mallory", "billing", "deny", "--reason", reason,
    ];
    stage.type_in(&rule).await?;
    let before = stage.daemon.counter(CLAIMS).await?;
    let since = Instant::now();
    let forged = [
        ("t", "c"),
        ("i", "m1"),
        ("c", "charge"),
        ("p", "{\"cents\":999999}"),
        ("ss", "shop"),
        ("_rt", "billing"),
    ];
    stage.desk.write("mallory", &forged).await?;
    let refusal = stage
        .desk
        .wait_for("mallory", &[("t", "r"), ("ri", "m1"), ("st", "error")])
        .await?;
    let took = since.elapsed();
    let said = |name: &str| refusal.get(name).map_or("", String::as_str);
    if said("_ec") != "RELAY.DENIED" || !said("e").contains("mallory:billing") {
        return Err(Broken::new(format!(
            "a forged source was refused with {}: {}",
            said("_ec"),
            said("e")
        )));
    }
    let arrived = stage.desk.all("billing").await?;
    if arrived
        .iter()
        .any(|(_, entry)| entry.get("p").is_some_and(|p| p.contains("999999")))
    {
        return Err(Broken::new("a forged command reached billing".to_owned()));
    }
    let counted = reaches(stage, CLAIMS, before + 1).await?;
    Ok(Scene::new(
        "a forged source gets nowhere",
        vec![
            "mallory asked billing in shop's name (ss=shop): charge {\"cents\":999999}".to_owned(),
            format!(
                "the daemon refused mallory: {}, {}, after {}; claims of this kind counted: {counted}",
                said("_ec"),
                said("e"),
                ms(took)
            ),
        ],
    ))
}

/// `mallory` knows everything about a command that waits for its answer, and answers it.
pub(super) async fn reply(stage: &mut Stage) -> Result<Scene, Broken> {
    let before = stage.daemon.counter(FOREIGN).await?;
    let shop = stage.cast.shop.clone();
    let since = Instant::now();
    let asked = tokio::spawn(async move {
        let params = json!({"item": 7});
        shop.call("billing", "quote", &params, PATIENCE * 2).await
    });
    let arrived = stage
        .desk
        .wait_for("billing", &[("t", "c"), ("c", "quote")])
        .await?;
    let delivery = arrived.get("i").map_or("", String::as_str);
    let home = stream("shop");
    let forged = [
        ("t", "r"),
        ("ri", delivery),
        ("st", "ok"),
        ("r", "{\"cents\":1}"),
        ("ss", "billing"),
        ("_rr", &home),
    ];
    stage.desk.write("mallory", &forged).await?;
    reaches(stage, FOREIGN, before + 1).await?;
    stage.cast.quotes.add_permits(1);
    let reply = asked
        .await
        .map_err(|error| Broken::new(error.to_string()))?
        .map_err(|error| Broken::new(format!("billing quote: {error}")))?;
    let took = since.elapsed();
    if reply.json::<Value>().ok() != Some(json!({"cents": 300})) || reply.site() != "billing" {
        return Err(Broken::new(format!(
            "{} answered shop with {}",
            reply.site(),
            reply.text()
        )));
    }
    let came = stage.desk.all("shop").await?;
    if came
        .iter()
        .any(|(_, entry)| entry.get("r").is_some_and(|r| r == "{\"cents\":1}"))
    {
        return Err(Broken::new("a forged reply reached shop".to_owned()));
    }
    Ok(Scene::new(
        "a forged reply gets nowhere",
        vec![
            "shop asked billing: quote {\"item\":7}".to_owned(),
            "mallory answered first, with the right id, in billing's name: {\"cents\":1}; the daemon dropped it".to_owned(),
            format!("billing answered: {{\"cents\":300}}, after {}; shop saw nothing else", ms(took)),
        ],
    ))
}

async fn reaches(stage: &Stage, counter: &str, count: u64) -> Result<u64, Broken> {
    let by = Instant::now() + PATIENCE;
    loop {
        let now = stage.daemon.counter(counter).await?;
        if now >= count {
            return Ok(now);
        }
        if Instant::now() >= by {
            return Err(Broken::new(format!(
                "{counter} stands at {now} after {PATIENCE:?}"
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}
