//! Optimistic changes of a hash.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::backoff::spread;
use super::connection::Connection;
use super::dial::Dialer;
use super::encode::Outgoing;
use super::frame::Frame;
use crate::streams::{HashChange, StoreError};

/// What the port promises.
const MAX_ATTEMPTS: u32 = 100;
/// The longest pause before another attempt.
const LONGEST_PAUSE_US: u64 = 20_000;

/// Connections for changes that watch a key: that concerns the whole connection, so each change
/// has one to itself. One is kept for the next.
pub(crate) struct Updates {
    dialer: Arc<Dialer>,
    idle: Mutex<Option<Connection>>,
}

type Decide<'d> = dyn for<'a> FnMut(&'a HashMap<String, String>) -> Vec<HashChange> + Send + 'd;

impl Updates {
    pub(crate) fn new(dialer: Arc<Dialer>) -> Updates {
        Updates {
            dialer,
            idle: Mutex::new(None),
        }
    }

    /// See [`crate::streams::Streams::hash_update`].
    pub(crate) async fn update(
        &self,
        key: &str,
        decide: &mut Decide<'_>,
    ) -> Result<Vec<HashChange>, StoreError> {
        let kept = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(mut connection) = kept {
            // It may have broken while nobody used it.
            match connection.ask(&[b"PING"]).await {
                Ok(Frame::Text(_)) => return self.attempts(connection, key, decide).await,
                Ok(_) | Err(_) => drop(connection),
            }
        }
        let connection = Connection::open(&self.dialer, "crossway-update").await?;
        self.attempts(connection, key, decide).await
    }

    async fn attempts(
        &self,
        mut connection: Connection,
        key: &str,
        decide: &mut Decide<'_>,
    ) -> Result<Vec<HashChange>, StoreError> {
        for attempt in 0..MAX_ATTEMPTS {
            if let Some(written) = once(&mut connection, key, decide).await? {
                *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
                return Ok(written);
            }
            let longest = (100_u64 << attempt.min(10)).min(LONGEST_PAUSE_US);
            tokio::time::sleep(Duration::from_micros(spread() % longest)).await;
        }
        let reason =
            format!("it was changed by others during each of {MAX_ATTEMPTS} attempts; try again");
        Err(StoreError::Refused {
            command: "EXEC",
            key: key.to_owned(),
            reason,
        })
    }
}

/// One attempt; `None` when the hash was changed meanwhile.
pub(crate) async fn once(
    connection: &mut Connection,
    key: &str,
    decide: &mut Decide<'_>,
) -> Result<Option<Vec<HashChange>>, StoreError> {
    let name = key.as_bytes();
    let mut out = Outgoing::default();
    out.line(&[b"WATCH", name]).line(&[b"HGETALL", name]);
    connection.send(out.pieces()).await?;
    let watched = connection.answer().await?;
    let all = connection.answer().await?;
    succeeded("WATCH", key, &watched)?;
    succeeded("HGETALL", key, &all)?;
    let changes = decide(&fields(&all));
    if changes.is_empty() {
        connection.must("UNWATCH", &[b"UNWATCH"]).await?;
        return Ok(Some(changes));
    }
    let mut out = Outgoing::default();
    out.line(&[b"MULTI"]);
    for change in &changes {
        match change {
            HashChange::Set(field, value) => {
                out.line(&[b"HSET", name, field.as_bytes(), value.as_bytes()])
            }
            HashChange::Remove(field) => out.line(&[b"HDEL", name, field.as_bytes()]),
        };
    }
    out.line(&[b"EXEC"]);
    connection.send(out.pieces()).await?;
    // Every answer is taken before any is judged, so that the connection stays in step.
    let mut refused = Ok(());
    for _ in 0..=changes.len() {
        refused = refused.and(succeeded("HSET", key, &connection.answer().await?));
    }
    let executed = connection.answer().await?;
    refused?;
    succeeded("EXEC", key, &executed)?;
    for answer in executed.elements() {
        succeeded("HSET", key, answer)?;
    }
    Ok((executed != Frame::Null).then_some(changes))
}

fn succeeded(command: &'static str, key: &str, answer: &Frame) -> Result<(), StoreError> {
    match answer {
        Frame::Error(text) => Err(StoreError::Refused {
            command,
            key: key.to_owned(),
            reason: String::from_utf8_lossy(text).into_owned(),
        }),
        _ => Ok(()),
    }
}

pub(crate) fn fields(all: &Frame) -> HashMap<String, String> {
    let text =
        |frame: &Frame| String::from_utf8_lossy(frame.text().unwrap_or_default()).into_owned();
    let pairs = all.elements().chunks_exact(2);
    pairs
        .filter_map(|pair| Some((text(pair.first()?), text(pair.last()?))))
        .collect()
}
