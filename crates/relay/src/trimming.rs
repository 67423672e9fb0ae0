//! Keeping streams from growing without end, without taking away what somebody hasn't read.
//!
//! Each daemon looks after the streams that it reads, one after the other and slowly: a round is
//! spread over its time, and none of it happens on the way of a message.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_core::address::SiteStream;
use crossway_transport::streams::{Key, Trimmed};
use tokio_util::sync::CancellationToken;

use crate::membership::slice;
use crate::relay::{Lease, Shared};

/// The shortest round.
const ROUND: Duration = Duration::from_secs(5);

/// Between two streams of a long round; it costs the store some hundredths of its time.
const STEP: Duration = Duration::from_millis(5);

/// The most entries that are taken off a stream at a time: the store does nothing else meanwhile.
const AT_ONCE: u64 = 10_000;

/// A stream may be longer by this much without being said to be held back: entries go in blocks.
const SLACK: u64 = 200;

/// A group that holds its stream back is written about at most this often.
const QUIET: Duration = Duration::from_secs(600);

/// Trims until cancelled.
pub(crate) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let mut written = HashMap::new();
    loop {
        let began = Instant::now();
        let trimming = async {
            round(&shared, &mut written).await;
            tokio::time::sleep(ROUND.saturating_sub(began.elapsed())).await;
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = trimming => {}
        }
    }
}

/// Looks at each stream that this daemon reads.
async fn round(shared: &Shared, written: &mut HashMap<Key, Instant>) {
    let mut leases = shared.lease.subscribe();
    let lease = Lease::valid(&mut leases).await;
    let ours = |stream: &SiteStream| lease.slices.contains(&slice(&stream.site));
    let streams = shared.directory.registry().streams();
    let mut held = 0;
    for stream in streams.into_iter().filter(ours) {
        let options = shared.directory.options();
        let trimmed = shared
            .store
            .trim_acknowledged(&stream.key, &options.group, options.max_len, AT_ONCE)
            .await;
        match trimmed {
            Ok(trimmed) => {
                shared.counters.trimmed.inc_by(trimmed.removed);
                if trimmed.removed == 0 && trimmed.beyond > SLACK {
                    held += 1;
                    write_about(&stream.key, &trimmed, written);
                }
            }
            // The reader says so, too, of a key that isn't a stream.
            Err(error) => tracing::debug!(stream = &*stream.key, %error, "a stream wasn't trimmed"),
        }
        tokio::time::sleep(STEP).await;
    }
    shared.counters.streams_held.set(held);
    written.retain(|_, at| at.elapsed() < QUIET);
}

fn write_about(stream: &Key, trimmed: &Trimmed, written: &mut HashMap<Key, Instant>) {
    if written.contains_key(stream) {
        return;
    }
    written.insert(stream.clone(), Instant::now());
    tracing::warn!(
        stream = &**stream,
        group = %trimmed.slowest.escape_debug(),
        beyond = trimmed.beyond,
        "a stream is longer than relay.max_len, because this group hasn't acknowledged its oldest entries; if nobody uses the group any more, destroy it"
    );
}
