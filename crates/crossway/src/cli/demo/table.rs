//! What crossed between whom, as the daemon counted it.

use serde::Deserialize;

use super::{Broken, Scene, Stage};

#[derive(Deserialize)]
struct Stats {
    pairs: Vec<Pair>,
}

#[derive(Deserialize)]
struct Pair {
    source: String,
    target: String,
    ok: u64,
    err: u64,
    translated: u64,
}

/// Asks the daemon for its counts, and shows them as a table.
pub(super) async fn crossed(stage: &mut Stage) -> Result<Scene, Broken> {
    let desk = &mut stage.desk;
    let command = [("t", "c"), ("i", "stats"), ("c", "relay_stats")];
    desk.write("shop", &command).await?;
    let answer = desk.wait_for("shop", &[("ri", "stats")]).await?;
    let stats: Stats = answer
        .get("r")
        .and_then(|text| serde_json::from_str(text).ok())
        .ok_or_else(|| Broken::new(format!("relay_stats was answered {answer:?}")))?;
    let mut lines = vec![format!(
        "{:<8} {:<8} {:>6} {:>8} {:>11}",
        "source", "target", "handed", "refused", "translated"
    )];
    lines.extend(stats.pairs.iter().map(|pair| {
        format!(
            "{:<8} {:<8} {:>6} {:>8} {:>11}",
            pair.source, pair.target, pair.ok, pair.err, pair.translated
        )
    }));
    Ok(Scene::new("what crossed", lines))
}
