//! Three services that speak three formats, and understand each other.

use serde_json::{Value, json};

use super::{Broken, Scene, Stage};

/// A service, the format it speaks, and what it says and hears in it.
struct Speaker {
    site: &'static str,
    format: &'static str,
    /// How it is given the command.
    hears: &'static str,
    /// How it answers.
    says: &'static str,
}

/// What `shop` says, in `standard_json`.
const ASKED: &str = r#"{"id":"41","command":"book","parameters":{"cents":12345678901234567890},"timestamp":1711900800}"#;

/// What `shop` reads as the answer, whoever gave it.
const UNDERSTOOD: &str =
    r#"{"id":"41","command":"booked","parameters":{"line":7},"timestamp":1711900801}"#;

const SPEAKERS: [Speaker; 2] = [
    Speaker {
        site: "ledger",
        format: "compact_json",
        hears: r#"{"i":"41","c":"book","p":{"cents":12345678901234567890},"t":1711900800}"#,
        says: r#"{"i":"41","c":"booked","p":{"line":7},"t":1711900801}"#,
    },
    Speaker {
        site: "till",
        format: "resp3",
        hears: r#"{"i":"41","c":"book","p":{"cents":12345678901234567890},"ts":1711900800000}"#,
        says: r#"{"i":"41","c":"booked","p":{"line":7},"ts":1711900801000}"#,
    },
];

/// `shop` asks two that speak otherwise, and reads both answers in its own format.
pub(super) async fn understood(stage: &mut Stage) -> Result<Scene, Broken> {
    let mut lines = vec![format!("shop speaks standard_json:  {ASKED}")];
    for speaker in &SPEAKERS {
        converse(stage, speaker).await?;
        let Speaker {
            site,
            format,
            hears,
            ..
        } = speaker;
        lines.push(format!("{site} speaks {format}, heard:  {hears}"));
        lines.push(format!("  and answered:  {}", speaker.says));
    }
    lines.push(format!("shop read, both times:  {UNDERSTOOD}"));
    Ok(Scene::new("three services, three formats", lines))
}

async fn converse(stage: &mut Stage, speaker: &Speaker) -> Result<(), Broken> {
    let Speaker { site, format, .. } = speaker;
    let desk = &mut stage.desk;
    let about =
        json!({"id": site, "environments": ["production"], "metadata": {"native_format": format}});
    let register = [
        ("t", "c"),
        ("i", "register"),
        ("c", "register_service"),
        ("p", &*about.to_string()),
    ];
    desk.write(site, &register).await?;
    desk.wait_for(site, &[("ri", "register"), ("st", "ok")])
        .await?;

    let request = format!("book-{site}");
    let command = [
        ("t", "c"),
        ("i", &*request),
        ("c", "book"),
        ("p", ASKED),
        ("_rt", *site),
    ];
    desk.write("shop", &command).await?;
    let heard = desk.wait_for(site, &[("_oi", &*request)]).await?;
    expect(&heard, "p", speaker.hears)?;
    let told = desk.wait_for("shop", &[("ri", &*request)]).await?;
    let told: Value = told
        .get("r")
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    if told.get("translated") != Some(&Value::Bool(true)) {
        return Err(Broken::new(format!("shop was told {told}")));
    }
    let delivery = heard.get("i").cloned().unwrap_or_default();
    let answer = [
        ("t", "r"),
        ("ri", &*delivery),
        ("st", "ok"),
        ("r", speaker.says),
    ];
    desk.write(site, &answer).await?;
    let home = desk
        .wait_for("shop", &[("ri", &*request), ("_cr", &*delivery)])
        .await?;
    expect(&home, "r", UNDERSTOOD)
}

fn expect(
    entry: &std::collections::HashMap<String, String>,
    field: &str,
    expected: &str,
) -> Result<(), Broken> {
    let found = entry.get(field).map(String::as_str).unwrap_or_default();
    match found == expected {
        true => Ok(()),
        false => Err(Broken::new(format!("{field} is {found}, not {expected}"))),
    }
}
