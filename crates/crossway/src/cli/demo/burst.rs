//! The daemon is killed in the middle of a lot of work, and everything is counted afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::cast::{Desk, Entry};
use super::{Broken, Scene, Stage, ms};

/// Commands that are sent.
const COMMANDS: usize = 2_000;
/// Commands in one write.
const CHUNK: usize = 100;
/// Commands that may wait for their answer at once.
const WINDOW: usize = 500;
/// How many are answered when the daemon is killed.
const KILL_AT: usize = 700;
/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);
/// Begins the request ids of these commands.
const NAME: &str = "burst-";

/// How far it has come, by what lies in the sender's own stream.
struct Progress {
    /// The last entry that was seen.
    last: String,
    /// Commands that were written.
    sent: usize,
    /// Commands that were answered.
    answered: BTreeSet<usize>,
}

/// Sends, kills the daemon on the way, and counts.
pub(super) async fn survived(stage: &mut Stage) -> Result<Scene, Broken> {
    let since = Instant::now();
    let mut progress = Progress {
        last: "0-0".to_owned(),
        sent: 0,
        answered: BTreeSet::new(),
    };
    let mut killed = None;
    while progress.answered.len() < COMMANDS {
        if since.elapsed() > PATIENCE {
            return Err(Broken::new(format!(
                "{} of {COMMANDS} commands are answered after {PATIENCE:?}",
                progress.answered.len()
            )));
        }
        let news = progress.look(&mut stage.desk).await?;
        let waiting = progress.sent.saturating_sub(progress.answered.len());
        if progress.sent < COMMANDS && waiting < WINDOW {
            progress.send(&mut stage.desk).await?;
        } else if !news {
            tokio::time::sleep(LOOK).await;
        }
        if killed.is_none() && progress.answered.len() >= KILL_AT {
            let (process, answered) = (stage.daemon.process(), progress.answered.len());
            let waiting = progress.sent.saturating_sub(answered);
            let back = stage.daemon.kill_and_start().await?;
            // The store was inside the daemon, so the connection is gone.
            stage.desk = Desk::open(&stage.daemon.url()).await?;
            killed = Some((process, answered, waiting, back));
        }
    }
    let took = since.elapsed();
    let Some((process, answered, waiting, back)) = killed else {
        return Err(Broken::new("the daemon was never killed".to_owned()));
    };
    once_each(stage).await?;
    Ok(Scene::new(
        "kill -9 in the middle of 2000 commands",
        vec![
            format!(
                "shop asked billing 2000 times: count; after {answered} answers, with {waiting} under way: kill -9 {process}"
            ),
            format!("the daemon was started again, and ready after {}", ms(back)),
            format!(
                "after {} in all: 2000 delivered once each, 2000 acknowledged once each, 2000 answered once each",
                ms(took)
            ),
        ],
    ))
}

impl Progress {
    /// Takes in what is new in the sender's stream: its own commands as well as the answers, so
    /// that after a broken connection it knows which of its writes were done.
    async fn look(&mut self, desk: &mut Desk) -> Result<bool, Broken> {
        let entries = desk.after("shop", &self.last).await?;
        for entry in &entries {
            if let Some(number) = number(entry, "i") {
                self.sent = self.sent.max(number + 1);
            }
            if let (Some(number), Some(Said::Answer)) = (number(entry, "ri"), said(entry)) {
                self.answered.insert(number);
            }
        }
        if let Some((id, _)) = entries.last() {
            self.last.clone_from(id);
        }
        Ok(!entries.is_empty())
    }

    async fn send(&mut self, desk: &mut Desk) -> Result<(), Broken> {
        let end = COMMANDS.min(self.sent + CHUNK);
        let commands: Vec<_> = (self.sent..end)
            .map(|number| {
                [
                    ("t", "c".to_owned()),
                    ("i", format!("{NAME}{number}")),
                    ("c", "count".to_owned()),
                    ("p", number.to_string()),
                    ("_rt", "billing".to_owned()),
                ]
            })
            .collect();
        desk.write_all("shop", &commands).await?;
        self.sent = end;
        Ok(())
    }
}

/// What a response on the sender's stream is.
enum Said {
    /// The daemon has delivered the command.
    Acknowledged,
    /// The target's answer, with the number that it was asked to give back.
    Answer,
    /// Something that must not be there.
    Wrong,
}

fn said((_, fields): &Entry) -> Option<Said> {
    let field = |name: &str| fields.get(name).map_or("", String::as_str);
    if field("t") != "r" {
        return None;
    }
    let number = field("ri").strip_prefix(NAME);
    Some(match (field("ss"), field("st")) {
        ("gnode", "ok") => Said::Acknowledged,
        ("billing", "ok") if number == Some(field("r")) => Said::Answer,
        _ => Said::Wrong,
    })
}

fn number((_, fields): &Entry, name: &str) -> Option<usize> {
    fields.get(name)?.strip_prefix(NAME)?.parse().ok()
}

/// Every command arrived once, was acknowledged once and was answered once, in the streams
/// themselves.
async fn once_each(stage: &mut Stage) -> Result<(), Broken> {
    let (mut delivered, mut acknowledged, mut answered) =
        (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for entry in stage.desk.all("billing").await? {
        if let Some(number) = number(&entry, "_oi") {
            *delivered.entry(number).or_insert(0usize) += 1;
        }
    }
    for entry in stage.desk.all("shop").await? {
        let Some(number) = number(&entry, "ri") else {
            continue;
        };
        let counts = match said(&entry) {
            Some(Said::Acknowledged) => &mut acknowledged,
            Some(Said::Answer) => &mut answered,
            Some(Said::Wrong) => {
                return Err(Broken::new(format!(
                    "command {number} got an answer that isn't its own"
                )));
            }
            None => continue,
        };
        *counts.entry(number).or_insert(0usize) += 1;
    }
    let once: BTreeMap<usize, usize> = (0..COMMANDS).map(|number| (number, 1)).collect();
    for (what, counts) in [
        ("delivered", delivered),
        ("acknowledged", acknowledged),
        ("answered", answered),
    ] {
        if counts != once {
            let more = counts.values().filter(|count| **count > 1).count();
            return Err(Broken::new(format!(
                "of {COMMANDS} commands {} were {what}, {more} of them more than once",
                counts.len()
            )));
        }
    }
    Ok(())
}
