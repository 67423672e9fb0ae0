//! Notices that a file was changed.
//!
//! Files are looked at, not subscribed to: it works on every kind of file system, and for files
//! that are replaced, mounted or linked to.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tokio::time::{Interval, MissedTickBehavior, interval};

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What tells one state of a file from another; `None` where there is no file.
type Mark = Option<(SystemTime, u64)>;

/// Some files, and how they were when a change was last told of.
pub(crate) struct Changes {
    told: Vec<(PathBuf, Mark)>,
    ticks: Interval,
}

impl Changes {
    /// Watches these files from how they are now.
    pub(crate) async fn watch(paths: Vec<PathBuf>) -> Changes {
        Changes::every(LOOK, paths).await
    }

    async fn every(period: Duration, paths: Vec<PathBuf>) -> Changes {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let told = marks(paths).await;
        Changes { told, ticks }
    }

    /// Watches these files from here on; one that was watched before is compared with what was
    /// last told of it. Tells whether there is a new one: whoever has read it before may have read
    /// what it isn't any more.
    pub(crate) async fn follow(&mut self, paths: Vec<PathBuf>) -> bool {
        let mut told = marks(paths).await;
        let mut news = false;
        for (path, mark) in &mut told {
            match self.told.iter().find(|(known, _)| known == path) {
                Some((_, before)) => *mark = *before,
                None => news = true,
            }
        }
        self.told = told;
        news
    }

    /// Waits until a file has changed and then stayed as it is between two looks: one that is
    /// being written is not to be read. May be dropped and called again.
    pub(crate) async fn next(&mut self) {
        let mut before = self.told.clone();
        loop {
            self.ticks.tick().await;
            let now = marks(self.told.iter().map(|(path, _)| path.clone())).await;
            if now != self.told && now == before {
                self.told = now;
                return;
            }
            before = now;
        }
    }
}

async fn marks(paths: impl IntoIterator<Item = PathBuf>) -> Vec<(PathBuf, Mark)> {
    let mut marks = Vec::new();
    for path in paths {
        let mark = match tokio::fs::metadata(&path).await {
            Ok(about) => about.modified().ok().map(|at| (at, about.len())),
            Err(_) => None,
        };
        marks.push((path, mark));
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        let period = Duration::from_millis(20);
        let mut changes = Changes::every(period, vec![file.clone()]).await;
        let patience = Duration::from_secs(20);

        for text in ["one", "longer"] {
            std::fs::write(&file, text).unwrap();
            tokio::time::timeout(patience, changes.next())
                .await
                .unwrap();
        }
        std::fs::remove_file(&file).unwrap();
        tokio::time::timeout(patience, changes.next())
            .await
            .unwrap();
        assert!(
            tokio::time::timeout(period * 5, changes.next())
                .await
                .is_err(),
            "nothing changed since"
        );
    }
}
