//! Data and log together, and those who wait for them. All of it lives under one lock.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::broadcast;

use super::Position;
use super::blocked::Blocked;
use super::engine::{Effect, Engine, Plan};
use super::log::Log;
use super::subscriptions::Subscriptions;
use crate::streams::{Key, StoreError};

/// Expired keys removed at one time; each write removes some, so they can't pile up.
const REAP: usize = 8;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) log: Option<Log>,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) blocked: Blocked,
    /// Keys that blocked reads have to be asked about.
    pub(super) stirred: Vec<Bytes>,
    created: broadcast::Sender<Key>,
}

impl State {
    pub(crate) fn new(engine: Engine, log: Option<Log>, created: broadcast::Sender<Key>) -> State {
        let (subscriptions, blocked) = (Subscriptions::default(), Blocked::default());
        State {
            engine,
            log,
            subscriptions,
            blocked,
            stirred: Vec::new(),
            created,
        }
    }

    /// Does what was planned: one record in the log, then the change.
    ///
    /// # Errors
    /// [`StoreError`] where the log can't be written; nothing was changed then.
    pub(crate) fn carry_out<T>(&mut self, plan: Plan<T>) -> Result<T, StoreError> {
        if plan.effects.is_empty() {
            return Ok(plan.answer);
        }
        if let Some(log) = &mut self.log {
            log.append(&plan.effects)?;
        }
        for effect in &plan.effects {
            let new_stream = self.engine.apply(effect);
            self.announce(effect, new_stream);
        }
        Ok(plan.answer)
    }

    fn announce(&mut self, effect: &Effect, new_stream: bool) {
        let key = effect.key();
        match effect {
            Effect::Append { .. }
            | Effect::Put { .. }
            | Effect::Delete { .. }
            | Effect::HashSet { .. }
            | Effect::HashRemove { .. } => {
                self.subscriptions.changed(key);
            }
            _ => {}
        }
        match effect {
            Effect::Append { .. }
            | Effect::Put { .. }
            | Effect::Delete { .. }
            | Effect::GroupDestroy { .. } => {
                self.subscriptions.stirred(key);
                if self.blocked.waits_for(key) && !self.stirred.contains(key) {
                    self.stirred.push(key.clone());
                }
            }
            _ => {}
        }
        if new_stream && let Ok(name) = std::str::from_utf8(key) {
            // Without a listener there is nobody to tell.
            let _ = self.created.send(Arc::from(name));
        }
    }

    /// Removes some keys that have expired.
    pub(crate) fn reap(&mut self, now: u64) {
        let expired = self.engine.expired(now, REAP);
        if expired.is_empty() {
            return;
        }
        let plan = self.engine.plan_delete(expired, now);
        if let Err(error) = self.carry_out(plan) {
            // They are absent to everybody all the same; the next write tries again.
            tracing::debug!(%error, "expired keys are kept for now");
        }
    }

    /// How far the log has been written; 0 without one.
    pub(crate) fn position(&self) -> Position {
        self.log.as_ref().map_or(0, Log::written)
    }

    pub(crate) fn wants_compaction(&self) -> bool {
        self.log.as_ref().is_some_and(Log::wants_compaction)
    }
}
