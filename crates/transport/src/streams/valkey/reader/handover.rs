//! Submitting settlements, with the next read sent on its way meanwhile.

use super::{Fence, Settled, Settlement, StoreError, ValkeyReader};
use crate::streams::valkey::connection::Connection;
use crate::streams::valkey::encode::Outgoing;
use crate::streams::valkey::frame::Frame;
use crate::streams::valkey::session::load;
use crate::streams::valkey::settle::{Call, Outcome, Plan, SCRIPT, Settler, enter};

/// From so many settlements on, giving the script along costs nothing that shows, and spares
/// waiting for the outcome before more may follow.
const SCRIPT_ALONG: usize = 32;

/// Entries of a batch from which on the next read is sent before the batch is looked at: there is
/// more, and the store may as well get it ready. After a smaller batch what is decided about it goes first.
pub(super) const EAGER: usize = 64;

/// A submission whose outcome wasn't asked for.
pub(super) enum Submitted {
    /// Its answers haven't come.
    Sent {
        plan: Plan,
        /// The script was given along, so it runs for certain.
        scripted: bool,
    },
    /// They have.
    Heard(Result<Vec<Settled>, StoreError>),
}

impl ValkeyReader {
    pub(super) async fn send(
        &mut self,
        fence: &Fence,
        settlements: &[Settlement],
    ) -> Result<(), StoreError> {
        self.connected().await?;
        // One that turns out not to have run is sent again, which must be before all others.
        let unsure = |submitted: &Submitted| {
            matches!(
                submitted,
                Submitted::Sent {
                    scripted: false,
                    ..
                }
            )
        };
        if self.submitted.iter().any(unsure) {
            self.catch_up().await?;
        }
        let digest = self.session()?.digest.clone();
        let settler = Settler {
            fence,
            group: &self.options.group,
            consumer: &self.options.consumer,
            command: "EVALSHA",
            digest: &digest,
        };
        let plan = settler.plan(settlements);
        let scripted = plan.calls.len() > 1 || settlements.len() >= SCRIPT_ALONG;
        self.midway = true;
        let settle = &mut self.session()?.settle;
        if scripted {
            let mut out = Outgoing::default();
            out.line(&[b"SCRIPT", b"LOAD", SCRIPT.as_bytes()]);
            settle.send(out.pieces()).await?;
        }
        for call in &plan.calls {
            settle.send(call.pieces.clone()).await?;
        }
        self.submitted.push_back(Submitted::Sent { plan, scripted });
        // After few, whoever waits for them is served first.
        if settlements.len() >= EAGER {
            self.read_ahead().await?;
        }
        self.midway = false;
        Ok(())
    }

    /// What became of the oldest submission.
    pub(super) async fn hear_outcome(&mut self) -> Result<Option<Vec<Settled>>, StoreError> {
        match self.submitted.pop_front() {
            None => Ok(None),
            Some(Submitted::Heard(outcome)) => outcome.map(Some),
            Some(Submitted::Sent { plan, scripted }) => {
                self.midway = true;
                let outcome = self.hear_answers(plan, scripted).await?;
                self.midway = false;
                outcome.map(Some)
            }
        }
    }

    /// Takes in all answers that are still to come, so that the connection is free for something else.
    pub(super) async fn catch_up(&mut self) -> Result<(), StoreError> {
        for at in 0..self.submitted.len() {
            let heard = Submitted::Heard(Ok(Vec::new()));
            let Some(place) = self.submitted.get_mut(at) else {
                break;
            };
            let outcome = match std::mem::replace(place, heard) {
                Submitted::Heard(outcome) => outcome,
                Submitted::Sent { plan, scripted } => {
                    self.midway = true;
                    let outcome = self.hear_answers(plan, scripted).await?;
                    self.midway = false;
                    outcome
                }
            };
            if let Some(place) = self.submitted.get_mut(at) {
                *place = Submitted::Heard(outcome);
            }
        }
        Ok(())
    }

    /// The outer error is one of the connection, the inner one the store's answer.
    async fn hear_answers(
        &mut self,
        plan: Plan,
        scripted: bool,
    ) -> Result<Result<Vec<Settled>, StoreError>, StoreError> {
        let Plan { calls, mut settled } = plan;
        let settle = &mut self.session()?.settle;
        let mut refusal = None;
        if scripted && let Frame::Error(text) = settle.answer().await? {
            refusal = Some(settle.refused("SCRIPT LOAD", &text));
        }
        let mut unknown: Vec<&Call> = Vec::new();
        for call in &calls {
            let answer = settle.answer().await?;
            match enter(call, &answer, &mut settled) {
                Outcome::Ran => {}
                Outcome::Unknown => unknown.push(call),
                outcome => keep(&mut refusal, outcome, settle),
            }
        }
        if !unknown.is_empty() {
            load(settle).await?;
            for call in unknown {
                settle.send(call.pieces.clone()).await?;
                let answer = settle.answer().await?;
                match enter(call, &answer, &mut settled) {
                    Outcome::Ran => {}
                    outcome => keep(&mut refusal, outcome, settle),
                }
            }
        }
        Ok(refusal.map_or(Ok(settled), Err))
    }

    /// Sends the next reads, where it is certain what they will be.
    pub(super) async fn read_ahead(&mut self) -> Result<(), StoreError> {
        if !self.rewound && self.may_read() {
            for lane in &mut self.lanes {
                lane.launch_ahead(&self.options, &self.dialer.at).await?;
            }
        }
        Ok(())
    }
}

/// Keeps the first refusal, and the fence before any other: it says that nothing more will be
/// written at all.
fn keep(refusal: &mut Option<StoreError>, outcome: Outcome, connection: &Connection) {
    let error = match outcome {
        Outcome::Fenced => StoreError::Fenced,
        Outcome::Refused(reason) => connection.refused("EVALSHA", reason.as_bytes()),
        Outcome::Unknown => connection.refused(
            "EVALSHA",
            b"NOSCRIPT the script was forgotten again and again",
        ),
        Outcome::Ran | Outcome::Nonsense => {
            connection.refused("EVALSHA", b"ERR its answer isn't one of the script")
        }
    };
    if refusal.is_none() || matches!(error, StoreError::Fenced) {
        *refusal = Some(error);
    }
}
