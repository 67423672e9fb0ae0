//! Settling, with the next read sent on its way meanwhile.

use super::{Fence, Settled, Settlement, StoreError, ValkeyReader};
use crate::streams::valkey::connection::Connection;
use crate::streams::valkey::encode::Outgoing;
use crate::streams::valkey::frame::Frame;
use crate::streams::valkey::session::load;
use crate::streams::valkey::settle::{Call, Outcome, Plan, SCRIPT, Settler, enter};

impl ValkeyReader {
    pub(super) async fn hand_over(
        &mut self,
        fence: &Fence,
        settlements: &[Settlement],
    ) -> Result<Vec<Settled>, StoreError> {
        self.connected().await?;
        let digest = self.session()?.digest.clone();
        let settler = Settler {
            fence,
            group: &self.options.group,
            consumer: &self.options.consumer,
            digest: &digest,
        };
        let plan = settler.plan(settlements);
        self.midway = true;
        let settled = self.carry_out(plan).await?;
        self.midway = false;
        settled
    }

    /// The outer error is one of the connection, the inner one the store's answer.
    async fn carry_out(
        &mut self,
        plan: Plan,
    ) -> Result<Result<Vec<Settled>, StoreError>, StoreError> {
        let Plan { calls, mut settled } = plan;
        let mut refusal = None;
        let session = self.session()?;
        // With the script there at the first call it is there at all of them, and none is
        // carried out before an earlier one.
        let several = calls.len() > 1;
        if several {
            let mut out = Outgoing::default();
            out.line(&[b"SCRIPT", b"LOAD", SCRIPT.as_bytes()]);
            session.settle.send(out.pieces()).await?;
        }
        for call in &calls {
            session.settle.send(call.pieces.clone()).await?;
        }
        self.read_ahead().await?;
        let session = self.session()?;
        if several && let Frame::Error(text) = session.settle.answer().await? {
            refusal = Some(session.settle.refused("SCRIPT LOAD", &text));
        }
        let mut unknown: Vec<&Call> = Vec::new();
        for call in &calls {
            let answer = session.settle.answer().await?;
            match enter(call, &answer, &mut settled) {
                Outcome::Ran => {}
                Outcome::Unknown => unknown.push(call),
                outcome => keep(&mut refusal, outcome, &session.settle),
            }
        }
        if !unknown.is_empty() {
            load(&mut session.settle).await?;
            for call in unknown {
                session.settle.send(call.pieces.clone()).await?;
                let answer = session.settle.answer().await?;
                match enter(call, &answer, &mut settled) {
                    Outcome::Ran => {}
                    outcome => keep(&mut refusal, outcome, &session.settle),
                }
            }
        }
        Ok(refusal.map_or(Ok(settled), Err))
    }

    /// Sends the next reads, where it is certain what they will be.
    async fn read_ahead(&mut self) -> Result<(), StoreError> {
        if !self.rewound {
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
