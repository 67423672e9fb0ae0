//! Closing temporary channels that nobody uses.
//!
//! The daemon that holds the slice of the namespace does it. It asks the store to delete a stream
//! if it hasn't been used for its time; whether it was is the store's to tell, in the same step, so a
//! channel that somebody begins to use again can't be lost to a look that was made before.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_transport::streams::StoreError;
use tokio_util::sync::CancellationToken;

use super::Mode;
use crate::membership::slice;
use crate::relay::{Lease, Shared};

/// Between two rounds.
const ROUND: Duration = Duration::from_secs(2);

/// The shortest and the longest time until a channel is looked at again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Something that keeps a channel from being closed is written about at most this often.
const QUIET: Duration = Duration::from_secs(600);

/// Closes what isn't used until cancelled.
pub(crate) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let mut sweep = Sweep::default();
    loop {
        let round = async {
            if let Err(error) = sweep.round(&shared).await {
                tracing::warn!(%error, "looking for channels that nobody uses");
            }
            tokio::time::sleep(ROUND).await;
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = round => {}
        }
    }
}

#[derive(Default)]
struct Sweep {
    /// When each channel is to be looked at.
    due: HashMap<String, Instant>,
    written: Option<Instant>,
}

impl Sweep {
    async fn round(&mut self, shared: &Shared) -> Result<(), StoreError> {
        let mut leases = shared.lease.subscribe();
        let lease = Lease::valid(&mut leases).await;
        let options = shared.directory.options();
        let keyspace = &options.keyspace;
        if !lease.slices.contains(&slice(keyspace.namespace())) {
            self.due.clear();
            return Ok(());
        }
        let (store, channels) = (&*shared.store, &shared.channels);
        let all = channels.all(store, keyspace).await?;
        shared
            .counters
            .channels
            .set(i64::try_from(all.len()).unwrap_or(i64::MAX));
        self.due
            .retain(|id, _| all.iter().any(|channel| channel.id == *id));
        for channel in all {
            let Mode::Temporary(ttl) = channel.mode else {
                continue;
            };
            let now = Instant::now();
            if self.due.get(&channel.id).is_some_and(|due| now < *due) {
                continue;
            }
            match store.delete_idle(&keyspace.direct(&channel.id), ttl).await {
                Ok(None) => {
                    channels.forget(store, &options, &channel).await?;
                    self.due.remove(&channel.id);
                    tracing::info!(channel = channel.id, source = %channel.source, target = %channel.target, "a channel that nobody used was closed");
                }
                Ok(Some(unused)) => {
                    let left = ttl.saturating_sub(unused).clamp(AGAIN.0, AGAIN.1);
                    self.due.insert(channel.id.clone(), now + left);
                }
                Err(error @ StoreError::Refused { .. }) if !error.is_transient() => {
                    self.due.insert(channel.id.clone(), now + AGAIN.1);
                    self.write_about(&channel.id, &error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_about(&mut self, channel: &str, error: &StoreError) {
        if self.written.is_none_or(|at| at.elapsed() >= QUIET) {
            self.written = Some(Instant::now());
            tracing::warn!(channel, %error, "whether a channel is used can't be told; it stays open until it is closed");
        }
    }
}
