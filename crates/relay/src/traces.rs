//! Crossings as spans.
//!
//! A span begins when its entry has been read and ends when the store has confirmed what was
//! decided; then it goes into a bounded queue, and whoever exports it takes it from there. Where
//! the queue is full it is dropped and counted: traces never hold up a message. Only a crossing
//! that is recorded costs anything, and no span ever holds a value of a message.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crossway_core::address::SiteStream;
use crossway_core::entry::{Entry, Fields};
use crossway_core::guard::Objection;
use crossway_core::message::Message;
use crossway_core::trace::{Attribute, Event, Ratio, Span, SpanId, TraceId, TraceParent};
use tokio::sync::mpsc;

use crate::answers::echo;
use crate::counters::{Counters, Outcome};
use crate::crossing::Decided;
use crate::judge::may_be_answer;
use crate::reply::Record;

/// What is traced, and where finished spans go.
#[derive(Clone, Debug)]
pub struct Traces {
    /// The share of messages without a trace context that begin a trace. A message with one is
    /// recorded if its context says so.
    pub ratio: Ratio,
    /// Takes finished spans; what doesn't fit is dropped and counted.
    pub spans: mpsc::Sender<Span>,
}

/// A moment by both clocks, so that later ones are told by the one that never jumps.
struct Moment {
    at: Instant,
    /// Nanoseconds since the epoch.
    wall_ns: u64,
}

impl Moment {
    fn of(at: Instant) -> Moment {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .saturating_sub(at.elapsed());
        let wall_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        Moment { at, wall_ns }
    }

    /// Nanoseconds since the epoch, now.
    fn elapsed_ns(&self) -> u64 {
        let since = u64::try_from(self.at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.wall_ns.saturating_add(since)
    }
}

/// What is done to a message, as it stands in its span's name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Forward,
    Answer,
    Run,
}

impl Work {
    const fn as_str(self) -> &'static str {
        match self {
            Work::Forward => "forward",
            Work::Answer => "answer",
            Work::Run => "run",
        }
    }
}

/// Draws the ids of spans. Random bytes are taken from the system for many at a time.
pub(crate) struct Tracer {
    pool: [u8; 24 * 64],
    used: usize,
}

impl Tracer {
    pub(crate) fn new() -> Tracer {
        let pool = [0; 24 * 64];
        Tracer {
            used: pool.len(),
            pool,
        }
    }

    /// Begins the span of an entry that is to be relayed, or that answers a recorded relay; `None`
    /// where none is to be recorded. `record` is the relay that the entry answers.
    pub(crate) fn crossing(
        &mut self,
        traces: &Traces,
        source: &SiteStream,
        entry: &Entry,
        record: Option<&Record>,
        read: Instant,
    ) -> Option<Box<Trace>> {
        let fields = &entry.fields;
        if may_be_answer(fields) {
            let asked = record?.trace()?;
            // The service's own span, where it tells of one, is what the answer comes from.
            let parent = given(fields).filter(|given| given.trace == asked.trace);
            let (context, parent) = (asked.child(self.span()?), parent.unwrap_or(asked).span);
            return Some(Trace::begin(
                Work::Answer,
                context,
                Some(parent),
                source,
                entry,
                read,
            ));
        }
        fields.get(b"_rt")?;
        self.begin(Work::Forward, traces, source, entry, read)
    }

    /// Begins the span of a command of the daemon's own.
    pub(crate) fn command(
        &mut self,
        traces: &Traces,
        source: &SiteStream,
        entry: &Entry,
        read: Instant,
    ) -> Option<Box<Trace>> {
        self.begin(Work::Run, traces, source, entry, read)
    }

    fn begin(
        &mut self,
        work: Work,
        traces: &Traces,
        source: &SiteStream,
        entry: &Entry,
        read: Instant,
    ) -> Option<Box<Trace>> {
        let (context, parent) = match given(&entry.fields) {
            Some(parent) if !parent.is_sampled() => return None,
            Some(parent) => (parent.child(self.span()?), Some(parent.span)),
            // One that can't be read is somebody else's matter and goes on as it came.
            None if has_context(&entry.fields) => return None,
            None => {
                let trace = TraceId::new(self.draw()?)?;
                if !traces.ratio.takes(trace) {
                    return None;
                }
                (TraceParent::beginning(trace, self.span()?), None)
            }
        };
        Some(Trace::begin(work, context, parent, source, entry, read))
    }

    fn span(&mut self) -> Option<SpanId> {
        SpanId::new(self.draw()?)
    }

    /// Random bytes; `None` where the system has none, and then nothing is recorded.
    fn draw<const N: usize>(&mut self) -> Option<[u8; N]> {
        if self.pool.len() - self.used < N {
            getrandom::fill(&mut self.pool).ok()?;
            self.used = 0;
        }
        let bytes = self.pool.get(self.used..)?.first_chunk().copied();
        self.used += N;
        bytes
    }
}

/// The trace context that an entry came with, where it is one.
fn given(fields: &Fields) -> Option<TraceParent> {
    let text = fields.get(b"tp").or_else(|| fields.get(b"traceparent"))?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn has_context(fields: &Fields) -> bool {
    fields.get(b"tp").is_some() || fields.get(b"traceparent").is_some()
}

/// The span of an entry that is on its way.
pub(crate) struct Trace {
    span: Span,
    work: Work,
    began: Moment,
}

impl Trace {
    fn begin(
        work: Work,
        context: TraceParent,
        parent: Option<SpanId>,
        source: &SiteStream,
        entry: &Entry,
        read: Instant,
    ) -> Box<Trace> {
        let message = Message::read(&entry.fields);
        let began = Moment::of(read);
        let mut attributes = vec![
            Attribute::text("messaging.system", "crossway"),
            Attribute::text("messaging.operation.name", work.as_str()),
            Attribute::text("messaging.operation.type", "process"),
            Attribute::text("messaging.message.id", entry.id.to_string()),
            Attribute::number(
                "messaging.message.envelope.size",
                u64::try_from(entry.fields.size()).unwrap_or(u64::MAX),
            ),
            Attribute::text("crossway.source", source.site.to_string()),
            Attribute::text("crossway.environment", source.environment.to_string()),
        ];
        if !message.command().is_empty() {
            attributes.push(Attribute::text("crossway.command", echo(message.command())));
        }
        if let Some(target) = message.target() {
            attributes.push(Attribute::text("crossway.asked_target", echo(&target)));
        }
        if work == Work::Answer {
            let status = if message.succeeded() { "ok" } else { "error" };
            attributes.push(Attribute::text("crossway.reply.status", status));
        }
        let span = Span {
            context,
            parent,
            name: work.as_str().to_owned(),
            start_ns: began.wall_ns,
            end_ns: began.wall_ns,
            attributes,
            events: vec![Event {
                name: "read",
                at_ns: began.wall_ns,
                attributes: Vec::new(),
            }],
            failure: None,
        };
        Box::new(Trace { span, work, began })
    }

    /// What is written on what goes on, so that further spans hang below this one.
    pub(crate) fn context(&self) -> TraceParent {
        self.span.context
    }

    /// It has been decided what becomes of the entry.
    pub(crate) fn decided(&mut self, decided: &Decided) {
        match (&decided.objection, decided.outcome) {
            (Some(objection), _) => self.step("refused", reasons(objection)),
            (None, Outcome::Relayed | Outcome::Answered) => self.step("admitted", Vec::new()),
            (None, Outcome::Command) => self.step("run", Vec::new()),
            (None, _) => self.step("passed over", Vec::new()),
        }
        // What goes on is the first thing that is written; after it, the sender is told.
        if !matches!(decided.outcome, Outcome::Relayed | Outcome::Answered) {
            return;
        }
        if let Some(append) = decided.settlement.appends.first() {
            if let Some(site) = append.fields.get(b"ds") {
                let site = String::from_utf8_lossy(site).into_owned();
                self.span.name = format!("{} {site}", self.work.as_str());
                self.know(Attribute::text("crossway.target", site));
            }
            let stream = append.stream.to_string();
            self.know(Attribute::text("messaging.destination.name", stream));
        }
    }

    /// What was decided has been sent to the store.
    pub(crate) fn handed_over(&mut self) {
        self.step("handed over", Vec::new());
    }

    /// The store wouldn't have it.
    pub(crate) fn turned_down(&mut self) {
        self.step("turned down by the store", Vec::new());
    }

    /// The store has confirmed what became of the entry: the span ends.
    pub(crate) fn finish(
        mut self,
        outcome: Outcome,
        objection: Option<&Objection>,
        traces: &Traces,
        counters: &Counters,
    ) {
        self.step("acknowledged", Vec::new());
        self.know(Attribute::text("crossway.outcome", outcome.as_str()));
        if let Some(objection) = objection {
            for reason in reasons(objection) {
                self.know(reason);
            }
            self.know(Attribute::text(
                "error.type",
                objection.refusal.code.as_str(),
            ));
            self.span.failure = Some(objection.refusal.to_string());
        }
        self.span.end_ns = self.began.elapsed_ns();
        if traces.spans.try_send(self.span).is_err() {
            counters.spans_dropped.inc();
        }
    }

    fn step(&mut self, name: &'static str, attributes: Vec<Attribute>) {
        self.span.events.push(Event {
            name,
            at_ns: self.began.elapsed_ns(),
            attributes,
        });
    }

    /// Adds an attribute in place of one of the same name.
    fn know(&mut self, attribute: Attribute) {
        self.span
            .attributes
            .retain(|known| known.name != attribute.name);
        self.span.attributes.push(attribute);
    }
}

fn reasons(objection: &Objection) -> Vec<Attribute> {
    vec![
        Attribute::text("crossway.code", objection.refusal.code.as_str()),
        Attribute::text("crossway.guard", objection.guard),
    ]
}
