//! What crossings leave for whoever follows a trace.

use std::time::Duration;

use crossway_core::trace::{Ratio, Span, Value};
use crossway_relay::Traces;
use tokio::sync::mpsc;

use crate::world::{PATIENCE, World, field, options, stream};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";
const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Spans as they come from a relay.
struct Spans(mpsc::Receiver<Span>);

impl Spans {
    async fn next(&mut self) -> Span {
        tokio::time::timeout(PATIENCE, self.0.recv())
            .await
            .expect("a span comes")
            .expect("the relay runs")
    }
}

async fn traced(world: &mut World, share: f64, room: usize) -> Spans {
    let (spans, taken) = mpsc::channel(room);
    let mut options = options("one");
    options.traces = Some(Traces {
        ratio: Ratio::new(share).unwrap(),
        spans,
    });
    for site in ["a", "b", "c"] {
        let body = r#"{"environments":["testing"],"metadata":{},"registered_at":1}"#;
        world
            .store
            .hash_set(&crate::world::keyspace().sites(), site, body)
            .await
            .unwrap();
    }
    world.start_with(options).await;
    Spans(taken)
}

fn known(span: &Span, name: &str) -> String {
    let found = span.attributes.iter().find(|known| known.name == name);
    match found.map(|known| &known.value) {
        Some(Value::Text(text)) => text.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        None => String::new(),
    }
}

fn steps(span: &Span) -> Vec<&'static str> {
    let mut times = vec![span.start_ns];
    times.extend(span.events.iter().map(|event| event.at_ns));
    times.push(span.end_ns);
    assert!(times.is_sorted(), "{span:?}");
    span.events.iter().map(|event| event.name).collect()
}

const SECRET: &str = "nobody-may-see-this";

fn command<'a>(id: &'a str, target: &'a str, trace: &'a str) -> [(&'a str, &'a str); 7] {
    [
        ("t", "c"),
        ("i", id),
        ("c", "get"),
        ("p", SECRET),
        ("_rt", target),
        ("mine", SECRET),
        ("tp", trace),
    ]
}

async fn a_request_and_its_answer_are_spans_of_the_senders_trace(mut world: World) {
    let mut spans = traced(&mut world, 0.0, 16).await;
    let entry = world.write("a", &command("1", "b", GIVEN)).await;
    let arrival = world.arrival("b", "1").await;
    let forward = spans.next().await;
    assert_eq!(forward.name, "forward b");
    assert_eq!(forward.context.trace.to_string(), TRACE);
    assert_eq!(forward.parent.unwrap().to_string(), SPAN);
    assert_eq!(
        steps(&forward),
        ["read", "admitted", "handed over", "acknowledged"]
    );
    assert_eq!(forward.failure, None);
    for (name, value) in [
        ("messaging.system", "crossway"),
        ("messaging.operation.name", "forward"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", &*stream("b")),
        ("messaging.message.id", &*entry.to_string()),
        ("crossway.source", "a"),
        ("crossway.target", "b"),
        ("crossway.asked_target", "b"),
        ("crossway.environment", "testing"),
        ("crossway.command", "get"),
        ("crossway.outcome", "relayed"),
        ("crossway.code", ""),
    ] {
        assert_eq!(known(&forward, name), value, "{name}");
    }
    assert_eq!(field(&arrival, "tp"), forward.context.to_string());

    let delivery = field(&arrival, "i");
    world
        .write(
            "b",
            &[
                ("t", "r"),
                ("ri", &delivery),
                ("st", "error"),
                ("e", SECRET),
            ],
        )
        .await;
    let home = world
        .wait_for(&stream("a"), &[("ri", "1"), ("ss", "b")])
        .await;
    let answer = spans.next().await;
    assert_eq!(answer.name, "answer a");
    assert_eq!(answer.context.trace, forward.context.trace);
    assert_eq!(answer.parent, Some(forward.context.span));
    assert_eq!(
        steps(&answer),
        ["read", "admitted", "handed over", "acknowledged"]
    );
    for (name, value) in [
        ("crossway.source", "b"),
        ("crossway.target", "a"),
        ("crossway.outcome", "answered"),
        ("crossway.reply.status", "error"),
    ] {
        assert_eq!(known(&answer, name), value, "{name}");
    }
    assert_eq!(field(&home, "tp"), answer.context.to_string());
    let shown = format!("{forward:?} {answer:?}");
    assert!(
        !shown.contains(SECRET) && !shown.contains(&delivery),
        "{shown}"
    );
    world.stop().await;
}

async fn a_refused_command_shows_code_and_guard(mut world: World) {
    let mut spans = traced(&mut world, 0.0, 16).await;
    world
        .store
        .hash_set(
            &crate::world::keyspace().policy(),
            "a:c",
            r#"{"action":"deny","reason":"closed","commands":["*"]}"#,
        )
        .await
        .unwrap();
    world.write("a", &command("1", "c", GIVEN)).await;
    assert_eq!(world.code("a", "1").await, "RELAY.DENIED");
    let refused = spans.next().await;
    assert_eq!(refused.name, "forward");
    assert_eq!(refused.parent.unwrap().to_string(), SPAN);
    assert_eq!(
        steps(&refused),
        ["read", "refused", "handed over", "acknowledged"]
    );
    let told = &refused.events[1].attributes;
    assert_eq!(told[0].name, "crossway.code");
    assert_eq!(told[0].value, Value::Text("RELAY.DENIED".into()));
    for (name, value) in [
        ("crossway.outcome", "refused"),
        ("crossway.code", "RELAY.DENIED"),
        ("crossway.guard", "policy"),
        ("error.type", "RELAY.DENIED"),
    ] {
        assert_eq!(known(&refused, name), value, "{name}");
    }
    let why = refused.failure.clone().unwrap();
    assert!(why.contains("a:c: closed"), "{why}");
    assert!(!format!("{refused:?}").contains(SECRET));
    world.stop().await;
}

async fn a_context_that_is_not_recorded_goes_through_as_it_came(mut world: World) {
    let mut spans = traced(&mut world, 1.0, 16).await;
    let unsampled = GIVEN.replace("-01", "-00");
    let odd = ["", "no context", &GIVEN.to_uppercase(), &unsampled];
    for (id, text) in ["1", "2", "3", "4"].into_iter().zip(odd) {
        world.write("a", &command(id, "b", text)).await;
        let arrival = world.arrival("b", id).await;
        assert_eq!(field(&arrival, "tp"), text);
    }
    // What isn't recorded going there isn't recorded coming back either.
    let delivery = field(&world.arrival("b", "4").await, "i");
    let reply = [("t", "r"), ("ri", &*delivery), ("tp", "mine")];
    world.write("b", &reply).await;
    let home = world
        .wait_for(&stream("a"), &[("ri", "4"), ("ss", "b")])
        .await;
    assert_eq!(field(&home, "tp"), "mine");
    world.write("a", &command("5", "b", GIVEN)).await;
    let first = spans.next().await;
    assert_eq!(
        first.parent.map(|span| span.to_string()).as_deref(),
        Some(SPAN),
        "nothing was recorded before"
    );
    world.stop().await;
}

async fn a_message_without_a_context_begins_a_trace_by_the_share(mut world: World) {
    let mut spans = traced(&mut world, 1.0, 16).await;
    let id = world.send("a", "b", "get").await;
    let arrival = world.arrival("b", &id).await;
    let first = spans.next().await;
    assert_eq!((first.name.as_str(), first.parent), ("forward b", None));
    assert!(first.context.is_sampled());
    assert_eq!(field(&arrival, "tp"), first.context.to_string());
    world.settled("a").await;
    let ping = spans.next().await;
    assert_eq!(ping.name, "run");
    assert_eq!(steps(&ping), ["read", "run", "handed over", "acknowledged"]);
    assert_ne!(ping.context.trace, first.context.trace);
    world.stop().await;

    let _none = traced(&mut world, 0.0, 16).await;
    let id = world.send("a", "b", "get").await;
    assert_eq!(field(&world.arrival("b", &id).await, "tp"), "");
    world.stop().await;
}

async fn the_services_own_span_is_what_an_answer_hangs_below(mut world: World) {
    let mut spans = traced(&mut world, 0.0, 16).await;
    for (id, trace, own) in [
        ("1", TRACE, true),
        ("2", "0af7651916cd43dd8448eb211c80319c", false),
    ] {
        world.write("a", &command(id, "b", GIVEN)).await;
        let delivery = field(&world.arrival("b", id).await, "i");
        let forward = spans.next().await;
        let tp = format!("00-{trace}-b7ad6b7169203331-01");
        world
            .write("b", &[("t", "r"), ("ri", &delivery), ("tp", &tp)])
            .await;
        let answer = spans.next().await;
        assert_eq!(answer.context.trace.to_string(), TRACE);
        assert_eq!(
            answer.parent.unwrap().to_string() == "b7ad6b7169203331",
            own
        );
        assert_eq!(answer.parent == Some(forward.context.span), !own);
    }
    world.stop().await;
}

async fn spans_that_nobody_takes_are_dropped_and_counted_and_hold_nothing_up(mut world: World) {
    let spans = traced(&mut world, 1.0, 2).await;
    for _ in 0..20 {
        world.send("a", "b", "get").await;
    }
    world.counts("crossway_relay_spans_dropped_total", 18).await;
    assert_eq!(
        world.counter("crossway_relay_entries_total{outcome=\"relayed\"}"),
        20
    );
    drop(spans);
    let id = world.send("a", "b", "get").await;
    world.arrival("b", &id).await;
    tokio::time::timeout(Duration::from_secs(20), world.stop())
        .await
        .unwrap();
}

on_both_stores!(
    a_request_and_its_answer_are_spans_of_the_senders_trace,
    a_refused_command_shows_code_and_guard,
    a_context_that_is_not_recorded_goes_through_as_it_came,
    a_message_without_a_context_begins_a_trace_by_the_share,
    the_services_own_span_is_what_an_answer_hangs_below,
    spans_that_nobody_takes_are_dropped_and_counted_and_hold_nothing_up,
);
