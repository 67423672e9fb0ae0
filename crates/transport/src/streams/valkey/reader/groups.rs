//! Groups that have to be made, and keys that aren't streams.

use std::time::Instant;

use super::{Key, StoreError, ValkeyReader, unreachable};
use crate::streams::valkey::cursors::Cursors;
use crate::streams::valkey::encode::Outgoing;
use crate::streams::valkey::frame::Frame;

/// Commands sent before their answers are read.
const AT_ONCE: usize = 1000;

impl ValkeyReader {
    /// Makes the groups that aren't known to exist.
    pub(super) async fn make_groups(&mut self, at: usize) -> Result<(), StoreError> {
        let missing = self.cursors(at)?.without_group(Instant::now());
        let group = self.options.group.clone();
        let made = self
            .each(&missing, |out, key| {
                out.line(&[
                    b"XGROUP",
                    b"CREATE",
                    key.as_bytes(),
                    group.as_bytes(),
                    b"0",
                    b"MKSTREAM",
                ]);
            })
            .await?;
        for (key, answer) in missing.into_iter().zip(made) {
            match answer {
                Frame::Error(text) if text.starts_with(b"BUSYGROUP") => {
                    self.cursors(at)?.has_group(&key, false);
                }
                Frame::Error(text) if text.starts_with(b"WRONGTYPE") => {
                    self.not_a_stream(at, key)?
                }
                Frame::Error(text) => {
                    let reason = String::from_utf8_lossy(&text).into_owned();
                    let error = StoreError::Refused {
                        command: "XGROUP CREATE",
                        key: key.to_string(),
                        reason,
                    };
                    if error.is_transient() {
                        return Err(error);
                    }
                    // The one key mustn't keep the others from being read.
                    tracing::warn!(%error, "a stream is left out");
                    self.cursors(at)?.leave_out(&key, Instant::now());
                }
                _ => {
                    if self.cursors(at)?.has_group(&key, true) {
                        self.report.remade.push(key);
                    }
                }
            }
        }
        // Streams that have been left out meanwhile aren't asked about again.
        self.cursors(at)?.without_group(Instant::now());
        Ok(())
    }

    /// Does something about a read that the store refused, or gives it as the error.
    pub(super) async fn put_in_order(
        &mut self,
        at: usize,
        refusal: &[u8],
    ) -> Result<(), StoreError> {
        // `UNBLOCKED`: the stream was deleted while its readers waited.
        if refusal.starts_with(b"NOGROUP") || refusal.starts_with(b"UNBLOCKED") {
            self.cursors(at)?.doubt_groups();
            return Ok(());
        }
        if refusal.starts_with(b"WRONGTYPE") {
            let keys = self.cursors(at)?.keys();
            let types = self
                .each(&keys, |out, key| {
                    out.line(&[b"TYPE", key.as_bytes()]);
                })
                .await?;
            for (key, kind) in keys.into_iter().zip(types) {
                if !matches!(kind.text(), Some(b"stream" | b"none") | None) {
                    self.not_a_stream(at, key)?;
                }
            }
            return Ok(());
        }
        Err(self.session()?.settle.refused("XREADGROUP", refusal))
    }

    fn cursors(&mut self, at: usize) -> Result<&mut Cursors, StoreError> {
        match self.lanes.get_mut(at) {
            Some(lane) => Ok(&mut lane.cursors),
            None => Err(unreachable(&self.dialer.at, "the connection is gone")),
        }
    }

    fn not_a_stream(&mut self, at: usize, key: Key) -> Result<(), StoreError> {
        self.cursors(at)?.leave_out(&key, Instant::now());
        self.report.not_streams.push(key);
        Ok(())
    }

    /// Sends a command about each key and gives the answers.
    async fn each(
        &mut self,
        keys: &[Key],
        write: impl Fn(&mut Outgoing, &Key),
    ) -> Result<Vec<Frame>, StoreError> {
        if !keys.is_empty() {
            self.catch_up().await?;
        }
        let mut answers = Vec::with_capacity(keys.len());
        for keys in keys.chunks(AT_ONCE) {
            let mut out = Outgoing::default();
            for key in keys {
                write(&mut out, key);
            }
            self.midway = true;
            let session = self.session()?;
            session.settle.send(out.pieces()).await?;
            for _ in keys {
                answers.push(session.settle.answer().await?);
            }
            self.midway = false;
        }
        Ok(answers)
    }
}
