//! Sends spans to a collector over OTLP.
//!
//! One task takes finished spans from a bounded queue and posts them, many at a time. Whatever the
//! collector does, nobody waits for it: while it can't be reached the queue fills, and what doesn't
//! fit is dropped and counted by whoever offers it.

mod otlp;
mod post;

use std::time::{Duration, Instant};

use crossway_core::trace::Span;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;

use self::otlp::Sender;
use self::post::{Posted, Postman};
use crate::config;

pub(crate) use self::post::CertificatesError;

/// Spans that may wait: what the queue of a usual exporter holds, about two megabytes.
const QUEUE: usize = 2048;

/// The most spans in one request, which stays far below what collectors take.
const BATCH: usize = 512;

/// How long the first span of a request waits for others.
const LINGER: Duration = Duration::from_secs(1);

/// Pauses before a request is tried again.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// Failures are written about at most this often.
const QUIET: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    result: Outcome,
}

/// What became of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types)] // These are the label's values as they are shown.
enum Outcome {
    exported,
    failed,
}

/// A running exporter.
pub(crate) struct Exporter {
    spans: mpsc::Sender<Span>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Starts one if the configuration names a collector; it needn't be there yet. `node` is this
    /// daemon among several.
    ///
    /// # Errors
    /// [`CertificatesError`] where the collector is to be spoken to over TLS, and nothing says whom
    /// to believe.
    pub(crate) async fn start(
        config: &config::Traces,
        node: &str,
        registry: &mut Registry,
    ) -> Result<Option<Exporter>, CertificatesError> {
        let Some(endpoint) = &config.endpoint else {
            return Ok(None);
        };
        let counts = Family::<Labels, Counter>::default();
        for result in [Outcome::exported, Outcome::failed] {
            drop(counts.get_or_create(&Labels { result }));
        }
        registry.register(
            "crossway_traces_spans",
            "Spans that were to be exported, by what came of it",
            counts.clone(),
        );
        let (spans, taken) = mpsc::channel(QUEUE);
        let stop = CancellationToken::new();
        let work = Work {
            sender: Sender::new(&config.service, node),
            postman: Postman::new(endpoint, &config.headers).await?,
            counts,
            stop: stop.clone(),
            unwritten: 0,
            written: None,
        };
        let task = tokio::spawn(work.run(taken));
        Ok(Some(Exporter { spans, stop, task }))
    }

    /// Where finished spans go.
    pub(crate) fn spans(&self) -> mpsc::Sender<Span> {
        self.spans.clone()
    }

    /// Sends what waits and ends, within `deadline`; tells whether all of it was tried.
    pub(crate) async fn stop(self, deadline: Duration) -> bool {
        self.stop.cancel();
        drop(self.spans);
        let mut task = self.task;
        let ended = tokio::time::timeout(deadline, &mut task).await.is_ok();
        if !ended {
            task.abort();
        }
        ended
    }
}

/// The exporter's task.
struct Work {
    sender: Sender,
    postman: Postman,
    counts: Family<Labels, Counter>,
    stop: CancellationToken,
    /// Spans that were lost since it was written about.
    unwritten: u64,
    written: Option<Instant>,
}

impl Work {
    async fn run(mut self, mut spans: mpsc::Receiver<Span>) {
        let mut batch = Vec::with_capacity(BATCH);
        while !self.stop.is_cancelled() {
            let taken = tokio::select! {
                () = self.stop.cancelled() => break,
                taken = spans.recv_many(&mut batch, BATCH) => taken,
            };
            if taken == 0 {
                return;
            }
            self.gather(&mut spans, &mut batch).await;
            self.export(&mut batch).await;
        }
        spans.close();
        while !batch.is_empty() || spans.recv_many(&mut batch, BATCH).await > 0 {
            self.export(&mut batch).await;
        }
    }

    /// Waits a little for more.
    async fn gather(&self, spans: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>) {
        let until = tokio::time::Instant::now() + LINGER;
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            let more = async {
                tokio::select! {
                    () = self.stop.cancelled() => 0,
                    taken = spans.recv_many(batch, room) => taken,
                }
            };
            if !matches!(timeout_at(until, more).await, Ok(1..)) {
                return;
            }
        }
    }

    /// Posts a batch, a few times where that may help.
    async fn export(&mut self, batch: &mut Vec<Span>) {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let body = self.sender.request(std::mem::take(batch));
        let mut pauses = PAUSES.into_iter();
        let (lost, reason) = loop {
            match self.postman.post(body.clone()).await {
                Posted::Taken => break (0, String::new()),
                Posted::Rejected { spans, reason } => break (spans.min(count), reason),
                Posted::Failed { passing, reason } => match pauses.next() {
                    // Also while the daemon leaves, which has a deadline of its own.
                    Some(pause) if passing => tokio::time::sleep(pause).await,
                    _ => break (count, reason),
                },
            }
        };
        let add = |result, number| {
            self.counts.get_or_create(&Labels { result }).inc_by(number);
        };
        add(Outcome::exported, count - lost);
        add(Outcome::failed, lost);
        self.complain(lost, &reason);
    }

    fn complain(&mut self, lost: u64, reason: &str) {
        self.unwritten = self.unwritten.saturating_add(lost);
        let due = self.written.is_none_or(|at| at.elapsed() >= QUIET);
        if lost > 0 && due {
            tracing::warn!(spans = self.unwritten, reason, "spans couldn't be exported");
            self.unwritten = 0;
            self.written = Some(Instant::now());
        }
    }
}
