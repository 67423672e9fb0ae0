//! Groups that have to be made, and keys that aren't streams.

use std::time::Instant;

use super::{Key, StoreError, ValkeyReader, unreachable};
use crate::streams::valkey::cursors::Cursors;
use crate::streams::valkey::encode::Outgoing;
use crate::streams::valkey::frame::Frame;

/// Commands sent before their answers are read.
const AT_ONCE: usize = 1000;

/// Gives one consumer of a group what is pending for the others, and removes them.
const INHERIT: &str = include_str!("inherit.lua");

/// The name in what `XINFO CONSUMERS` says of a consumer.
fn name_of(consumer: &Frame) -> Option<&[u8]> {
    let fields = consumer.elements().chunks_exact(2);
    fields
        .filter_map(|pair| pair.first()?.text().zip(pair.get(1)?.text()))
        .find_map(|(field, value)| (field == b"name").then_some(value))
}

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
        let mut found = Vec::new();
        for (key, answer) in missing.into_iter().zip(made) {
            match answer {
                Frame::Error(text) if text.starts_with(b"BUSYGROUP") => {
                    self.cursors(at)?.has_group(&key, false);
                    found.push(key);
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
        self.inherit(&found).await?;
        // Streams that have been left out meanwhile aren't asked about again.
        self.cursors(at)?.without_group(Instant::now());
        Ok(())
    }

    /// Takes over what other consumers of groups that existed before hold, and removes those: a
    /// group has one reader at a time, so whoever they belonged to is gone.
    async fn inherit(&mut self, streams: &[Key]) -> Result<(), StoreError> {
        let (group, heir) = (self.options.group.clone(), self.options.consumer.clone());
        let known = self
            .each(streams, |out, key| {
                out.line(&[b"XINFO", b"CONSUMERS", key.as_bytes(), group.as_bytes()]);
            })
            .await?;
        let others: Vec<Key> = streams
            .iter()
            .zip(known)
            .filter(|(_, answer)| {
                let mut consumers = answer.elements().iter();
                consumers.any(|consumer| name_of(consumer) != Some(heir.as_bytes()))
            })
            .map(|(key, _)| Key::clone(key))
            .collect();
        let inherited = self
            .each(&others, |out, key| {
                out.line(&[
                    b"EVAL",
                    INHERIT.as_bytes(),
                    b"1",
                    key.as_bytes(),
                    group.as_bytes(),
                    heir.as_bytes(),
                ]);
            })
            .await?;
        for (key, answer) in others.iter().zip(inherited) {
            match answer {
                Frame::Integer(entries) => {
                    tracing::info!(
                        stream = &**key,
                        entries,
                        "took over what others had in hand"
                    );
                }
                // Its own entries can be read all the same; the next start tries again.
                other => {
                    let reason = match &other {
                        Frame::Error(text) => String::from_utf8_lossy(text).into_owned(),
                        _ => "an answer that can't be read".to_owned(),
                    };
                    tracing::warn!(
                        stream = &**key,
                        reason,
                        "what other consumers of the group hold can't be taken over"
                    );
                }
            }
        }
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
