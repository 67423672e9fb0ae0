//! Finding sites that nobody registers, and other slow housekeeping.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::directory::DirectoryError;
use crate::judge::now_ms;
use crate::options::Discovery;
use crate::relay::Shared;

/// Between two looks for new keys, and for dead letters beyond their limit.
const LOOK: Duration = Duration::from_secs(3);

/// Between two looks for the other spelling of known streams: it asks for every one of them.
const LOOK_ALIKE: Duration = Duration::from_secs(15);

/// The first pause before a name that couldn't be taken in is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Looks after the directory until cancelled.
pub(crate) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let mut created = shared.store.created();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut scan, mut alike) = (true, Instant::now());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = look.tick() => {
                let spellings = alike.elapsed() >= LOOK_ALIKE || scan;
                if spellings {
                    alike = Instant::now();
                }
                keep_house(&shared, scan, spellings).await;
                scan = shared.directory.options().discovery == Discovery::Scan;
            }
            key = next(created.as_mut()) => match key {
                Some(key) => adopt(&shared, &key, &stop).await,
                // Some were missed.
                None => { scan = true; look.reset_immediately(); }
            },
        }
    }
}

async fn next(
    created: Option<&mut tokio::sync::broadcast::Receiver<Arc<str>>>,
) -> Option<Arc<str>> {
    let Some(created) = created else {
        return std::future::pending().await;
    };
    match created.recv().await {
        Ok(key) => Some(key),
        Err(RecvError::Lagged(_)) => None,
        Err(RecvError::Closed) => std::future::pending().await,
    }
}

/// Takes in a new stream, for as long as it takes: it isn't told of again.
async fn adopt(shared: &Shared, key: &str, stop: &CancellationToken) {
    let Ok(stream) = shared.directory.options().keyspace.parse_unified(key) else {
        return;
    };
    let mut pause = RETRY;
    while let Err(error) = shared.directory.adopt(&stream, now_ms()).await {
        tracing::warn!(stream = key, %error, "a new stream wasn't taken in");
        if matches!(error, DirectoryError::Refused(_)) {
            return;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LOOK),
        }
    }
}

async fn keep_house(shared: &Shared, scan: bool, spellings: bool) {
    let directory = &shared.directory;
    let options = directory.options();
    let mut outcome = Ok(());
    // A store that tells of new streams was silent about those that it had before.
    if scan && (options.discovery == Discovery::Scan || shared.store.created().is_some()) {
        outcome = scan_once(shared).await;
    }
    if outcome.is_ok() && spellings {
        outcome = directory
            .look_for_other_spellings()
            .await
            .map_err(DirectoryError::from);
    }
    for environment in options.keyspace.environments() {
        if outcome.is_ok() {
            let dead = options.keyspace.dead(environment);
            outcome = shared
                .store
                .trim(&dead, options.dead_max_len)
                .await
                .map_err(DirectoryError::from);
        }
    }
    if let Err(error) = outcome {
        tracing::warn!(%error, "looking after the registry");
    }
}

async fn scan_once(shared: &Shared) -> Result<(), DirectoryError> {
    let keyspace = shared.directory.options().keyspace.clone();
    for key in shared.store.scan(&keyspace.unified_pattern()).await? {
        let Ok(stream) = keyspace.parse_unified(&key) else {
            continue;
        };
        let known = shared.directory.registry().reads(&stream);
        if !known {
            match shared.directory.adopt(&stream, now_ms()).await {
                Err(DirectoryError::Refused(refusal)) => {
                    tracing::warn!(stream = key, %refusal, "a stream wasn't taken in")
                }
                other => other?,
            }
        }
    }
    Ok(())
}
