//! Answers commands: reads them as one of a group, so that the processes of a site share the work
//! and what one of them had read when it died is taken up by another.

use std::sync::Arc;
use std::time::Duration;

use redis::Pipeline;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::random_id;
use crate::command::{Command, Failure};
use crate::error::{ClientError, StoreError};
use crate::link::{Link, WriteError};
use crate::names::Names;
use crate::store::Store;
use crate::worker::{BLOCK, Worker};

/// A service that isn't started yet.
#[derive(Clone)]
pub struct Serve {
    pub(crate) link: Link,
    pub(crate) store: Store,
    pub(crate) names: Names,
    pub(crate) node: String,
    pub(crate) group: String,
    concurrency: usize,
    pub(crate) claim_after: Duration,
}

impl std::fmt::Debug for Serve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serve")
            .field("stream", &self.names.stream)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

impl Serve {
    pub(crate) fn new(link: Link, store: Store, names: Names, node: String) -> Serve {
        Serve {
            link,
            store,
            names,
            node,
            group: "service".to_owned(),
            concurrency: 64,
            claim_after: Duration::from_secs(60),
        }
    }

    /// The group that the processes of this site read as; `service` unless changed.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Serve {
        self.group = group.into();
        self
    }

    /// How many commands are worked on at once; 64 unless changed. No more are read.
    #[must_use]
    pub fn concurrency(mut self, commands: usize) -> Serve {
        self.concurrency = commands.clamp(1, 1 << 16);
        self
    }

    /// After how long a command that another process read and didn't settle is taken over; 60 s
    /// unless changed, and the same in all processes of a site. A handler may take half of this;
    /// then it is stopped and the sender told `TIMEOUT`, so that no command is worked on twice.
    #[must_use]
    pub fn claim_after(mut self, idle: Duration) -> Serve {
        self.claim_after = idle.max(Duration::from_millis(100));
        self
    }

    /// Starts to read commands and to answer each with what `handler` makes of it. The commands of
    /// a batch are given to it one after the other, and share the time that one may take.
    ///
    /// # Errors
    /// [`ClientError`] when the group can't be made or the store can't be reached.
    pub async fn start<H, F, R>(self, handler: H) -> Result<Serving, ClientError>
    where
        H: Fn(Command) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Serialize + Send + 'static,
    {
        make_group(&self.link, &self.names, &self.group).await?;
        let connection = self.store.connect_to_wait(BLOCK).await?;
        let consumer = format!(
            "{}-{}",
            self.node,
            random_id()?.get(..12).unwrap_or_default()
        );
        let stop = CancellationToken::new();
        let permits = Arc::new(Semaphore::new(self.concurrency));
        let worker = Worker::new(self, consumer, permits, handler, stop.clone());
        let guard = stop.clone().drop_guard();
        let task = tokio::spawn(worker.run(connection));
        Ok(Serving {
            stop,
            task,
            _guard: guard,
        })
    }
}

/// A service that runs. It ends when this is dropped; [`Serving::stop`] waits for that.
#[derive(Debug)]
pub struct Serving {
    stop: CancellationToken,
    task: JoinHandle<()>,
    _guard: DropGuard,
}

impl Serving {
    /// Reads no more, finishes and answers what is being worked on, and ends.
    pub async fn stop(self) {
        self.stop.cancel();
        // An error here is a panic of ours; the task has ended either way.
        let _ = self.task.await;
    }
}

/// Makes the group from the stream's beginning; one that is there already is as good.
pub(crate) async fn make_group(link: &Link, names: &Names, group: &str) -> Result<(), StoreError> {
    let mut write = Pipeline::new();
    write
        .cmd("XGROUP")
        .arg("CREATE")
        .arg(&*names.stream)
        .arg(group)
        .arg("0")
        .arg("MKSTREAM");
    match link
        .run(&write, Instant::now() + Duration::from_secs(10))
        .await
    {
        Ok(_) => Ok(()),
        Err(WriteError::Undone(StoreError::Refused { reason, .. }))
            if reason.starts_with("BUSYGROUP") =>
        {
            Ok(())
        }
        Err(error) => Err(error.into_store()),
    }
}
