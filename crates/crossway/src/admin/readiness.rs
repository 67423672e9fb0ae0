//! Whether every part of the daemon can do its work.

use std::collections::BTreeMap;

use tokio::sync::watch;

/// How the parts are, for the page and for whoever waits. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Readiness {
    parts: watch::Sender<BTreeMap<&'static str, Result<(), String>>>,
}

/// One part's pen.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    name: &'static str,
    readiness: Readiness,
}

impl Readiness {
    /// Without parts, and so not ready.
    pub(crate) fn new() -> Readiness {
        Readiness {
            parts: watch::Sender::new(BTreeMap::new()),
        }
    }

    /// A part that isn't ready until it says so.
    pub(crate) fn part(&self, name: &'static str) -> Ready {
        let part = Ready {
            name,
            readiness: self.clone(),
        };
        part.down("starting");
        part
    }

    /// Whether all parts are ready, and each part's state in words.
    pub(crate) fn report(&self) -> (bool, BTreeMap<&'static str, String>) {
        let parts = self.parts.borrow();
        let ready = !parts.is_empty() && parts.values().all(Result::is_ok);
        let words = parts
            .iter()
            .map(|(name, state)| {
                (
                    *name,
                    state
                        .as_ref()
                        .err()
                        .cloned()
                        .unwrap_or_else(|| "ready".to_owned()),
                )
            })
            .collect();
        (ready, words)
    }
}

impl Ready {
    /// The part can do its work.
    pub(crate) fn up(&self) {
        self.set(Ok(()));
    }

    /// The part can't, and why, without any secret.
    pub(crate) fn down(&self, why: impl Into<String>) {
        self.set(Err(why.into()));
    }

    fn set(&self, state: Result<(), String>) {
        self.readiness.parts.send_if_modified(|parts| {
            let changed = parts.get(self.name) != Some(&state);
            parts.insert(self.name, state);
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_means_that_every_part_is() {
        let readiness = Readiness::new();
        assert!(
            !readiness.report().0,
            "nothing is ready before anything has begun"
        );
        let (store, relay) = (readiness.part("store"), readiness.part("relay"));
        store.up();
        assert!(!readiness.report().0);
        relay.up();
        assert!(readiness.report().0);
        store.down("the disk is full");
        let (ready, words) = readiness.report();
        assert!(!ready);
        assert_eq!(
            words.get("store").map(String::as_str),
            Some("the disk is full")
        );
    }
}
