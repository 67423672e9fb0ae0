//! Settlements under way, and which of them must wait for which. No I/O.

use std::collections::HashSet;

use crate::streams::{Key, Settled, Settlement, StoreError, is_transient};

/// Why an entry isn't settled after another of its stream couldn't be.
const HELD: &str = "TRYAGAIN an entry before it couldn't be settled yet";

/// Whether an entry waits for a passing reason to pass.
pub(crate) fn is_held(settled: &Settled) -> bool {
    matches!(settled, Settled::Failed(reason) if is_transient(reason))
}

/// What wasn't to be settled because of what came before.
pub(crate) fn held(settlements: &[Settlement]) -> Vec<Settled> {
    vec![Settled::Failed(HELD.to_owned()); settlements.len()]
}

/// Settlements, and what is known of them so far.
pub(crate) struct Work<'a> {
    pub(crate) settlements: &'a [Settlement],
    pub(crate) outcomes: Vec<Option<Settled>>,
    /// What was added to other slots for each.
    pub(crate) ids: Vec<Vec<(Key, String)>>,
}

impl<'a> Work<'a> {
    pub(crate) fn new(settlements: &'a [Settlement]) -> Work<'a> {
        Work {
            settlements,
            outcomes: vec![None; settlements.len()],
            ids: vec![Vec::new(); settlements.len()],
        }
    }

    /// Those of which nothing is known yet.
    pub(crate) fn open(&self) -> Vec<(usize, &'a Settlement)> {
        let all = self.settlements.iter().zip(&self.outcomes).enumerate();
        all.filter(|(_, (_, outcome))| outcome.is_none())
            .map(|(at, (settlement, _))| (at, settlement))
            .collect()
    }

    pub(crate) fn end(&mut self, at: usize, settled: Settled) {
        if let Some(outcome) = self.outcomes.get_mut(at) {
            *outcome = Some(settled);
        }
    }

    pub(crate) fn fail(&mut self, at: usize, text: &[u8]) {
        self.end(
            at,
            Settled::Failed(String::from_utf8_lossy(text).into_owned()),
        );
    }

    pub(crate) fn fail_for(&mut self, at: usize, error: &StoreError) {
        self.end(at, Settled::Failed(passing(error)));
    }

    pub(crate) fn added(&mut self, at: usize, stream: &Key, id: &[u8]) {
        if let Some(ids) = self.ids.get_mut(at) {
            ids.push((stream.clone(), String::from_utf8_lossy(id).into_owned()));
        }
    }

    /// Holds what follows an entry of the same stream that waits.
    pub(crate) fn hold(&mut self) {
        let mut waiting: HashSet<&Key> = HashSet::new();
        for (settlement, outcome) in self.settlements.iter().zip(&mut self.outcomes) {
            match outcome {
                Some(outcome) if is_held(outcome) => drop(waiting.insert(&settlement.stream)),
                None if waiting.contains(&settlement.stream) => {
                    *outcome = Some(Settled::Failed(HELD.to_owned()));
                }
                _ => {}
            }
        }
    }
}

/// An error of a connection in the words of a node that is down: it will pass.
pub(crate) fn passing(error: &StoreError) -> String {
    format!("CLUSTERDOWN {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossway_core::entry::EntryId;

    #[test]
    fn what_follows_an_entry_that_waits_is_held_and_no_other() {
        let settlements: Vec<Settlement> = ["a", "a", "b"]
            .into_iter()
            .map(|stream| Settlement::acknowledge(stream.into(), EntryId::new(1, 0)))
            .collect();
        let mut work = Work::new(&settlements);
        work.fail(0, b"TRYAGAIN x");
        work.hold();
        assert!(work.outcomes[1].as_ref().is_some_and(is_held));
        assert_eq!(work.outcomes[2], None);
    }
}
