//! Spans as a collector gets them.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use crossway_client::Client;
use crossway_harness::store::{PATIENCE as SOON, add, connect, unified_stream as stream};
use crossway_harness::{Daemon, eventually};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use redis::aio::MultiplexedConnection;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const PROGRAM: &str = env!("CARGO_BIN_EXE_crossway");
const SECRET: &str = "nobody-may-see-this";
const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// What a collector was sent.
#[derive(Default)]
struct Received {
    /// Requests that are still to be turned away.
    turn_away: usize,
    requests: Vec<(HeaderMap, Bytes)>,
}

/// A collector that takes OTLP over HTTP and keeps it.
struct Collector {
    at: String,
    received: Arc<Mutex<Received>>,
    server: JoinHandle<()>,
}

impl Collector {
    async fn start(turn_away: usize) -> Collector {
        let received = Arc::new(Mutex::new(Received {
            turn_away,
            requests: Vec::new(),
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap());
        let pages = Router::new()
            .route("/v1/traces", post(take))
            .with_state(Arc::clone(&received));
        let server = tokio::spawn(async move { axum::serve(listener, pages).await.unwrap() });
        Collector {
            at,
            received,
            server,
        }
    }

    fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        let received = self.received.lock().unwrap();
        let decode = |(_, body): &(_, Bytes)| ExportTraceServiceRequest::decode(body.clone());
        received
            .requests
            .iter()
            .map(|request| decode(request).unwrap())
            .collect()
    }

    fn spans(&self) -> Vec<Span> {
        let of = |request: ExportTraceServiceRequest| request.resource_spans;
        self.requests()
            .into_iter()
            .flat_map(of)
            .flat_map(|resource| resource.scope_spans)
            .flat_map(|scope| scope.spans)
            .collect()
    }

    async fn span(&self, name: &str) -> Span {
        eventually(SOON, &format!("a span called {name}"), || async {
            self.spans().into_iter().find(|span| span.name == name)
        })
        .await
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take(
    State(received): State<Arc<Mutex<Received>>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let mut received = received.lock().unwrap();
    if received.turn_away > 0 {
        received.turn_away -= 1;
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    received.requests.push((headers, body));
    StatusCode::OK
}

fn text(attributes: &[KeyValue], name: &str) -> String {
    let found = attributes.iter().find(|known| known.key == name);
    match found.and_then(|known| known.value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(other) => format!("{other:?}"),
        None => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn daemon(endpoint: &str) -> Daemon {
    let mut daemon = Daemon::new(PROGRAM, "embedded");
    daemon.set("CROSSWAY_TRACES__ENDPOINT", endpoint);
    daemon
}

async fn send(connection: &mut MultiplexedConnection, id: &str, target: &str) {
    let fields = [
        ("t", "c"),
        ("i", id),
        ("c", "charge"),
        ("p", SECRET),
        ("_rt", target),
        ("tp", GIVEN),
    ];
    add(connection, &stream("shop"), &fields).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_sees_one_trace_of_a_request_and_its_answer_and_why_another_was_refused() {
    let collector = Collector::start(0).await;
    let mut daemon = daemon(&collector.at);
    daemon.set(
        "CROSSWAY_TRACES__HEADERS",
        r#"["authorization: Bearer hunter2"]"#,
    );
    daemon.set("CROSSWAY_TRACES__SERVICE", "border");
    daemon.set("CROSSWAY_NODE", "one");
    daemon.start_ready().await;
    let billing = Client::connect(&daemon.embedded_url(), "billing", "production")
        .await
        .unwrap();
    let serving = billing
        .serve(|_| async move { Ok::<_, crossway_client::Failure>(SECRET) })
        .await
        .unwrap();
    let mut connection = connect(&daemon.embedded_url()).await;
    send(&mut connection, "1", "billing").await;
    send(&mut connection, "2", "nobody").await;

    let forward = collector.span("forward billing").await;
    let answer = collector.span("answer shop").await;
    let refused = collector.span("forward").await;
    for span in [&forward, &answer, &refused] {
        assert_eq!(hex(&span.trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(text(&span.attributes, "messaging.system"), "crossway");
        assert_eq!(span.kind, 5, "a consumer's");
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
    }
    assert_eq!(hex(&forward.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(answer.parent_span_id, forward.span_id);
    assert_eq!(hex(&refused.parent_span_id), "00f067aa0ba902b7");
    let steps = |span: &Span| -> Vec<String> {
        assert!(span.events.is_sorted_by_key(|event| event.time_unix_nano));
        span.events.iter().map(|event| event.name.clone()).collect()
    };
    let usual = ["read", "admitted", "handed over", "acknowledged"];
    assert_eq!(steps(&forward), usual);
    assert_eq!(steps(&answer), usual);
    assert_eq!(
        steps(&refused),
        ["read", "refused", "handed over", "acknowledged"]
    );
    assert_eq!(
        text(&forward.attributes, "messaging.destination.name"),
        stream("billing")
    );
    assert_eq!(text(&forward.attributes, "crossway.command"), "charge");
    assert_eq!(forward.status, None);
    assert_eq!(text(&refused.attributes, "crossway.guard"), "addressed");
    assert_eq!(
        text(&refused.events[1].attributes, "crossway.code"),
        "RELAY.TARGET_NOT_FOUND"
    );
    assert_eq!(refused.status.unwrap().code, 2, "an error");

    let request = collector.requests().swap_remove(0);
    let resource = request.resource_spans[0].resource.clone().unwrap();
    assert_eq!(text(&resource.attributes, "service.name"), "border");
    assert_eq!(text(&resource.attributes, "service.instance.id"), "one");
    {
        let received = collector.received.lock().unwrap();
        let (headers, _) = &received.requests[0];
        assert_eq!(headers["authorization"], "Bearer hunter2");
        assert_eq!(headers["content-type"], "application/x-protobuf");
        let leaked = received.requests.iter().any(|(_, body)| {
            body.windows(SECRET.len())
                .any(|window| window == SECRET.as_bytes())
        });
        assert!(!leaked, "a value of a message was exported");
    }
    serving.stop().await;
    assert!(daemon.terminate().await, "{}", daemon.log());
    assert!(!daemon.log().contains("hunter2"), "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_is_exported_before_the_daemon_leaves_and_a_busy_collector_is_asked_again() {
    let collector = Collector::start(1).await;
    let mut daemon = daemon(&collector.at);
    daemon.start_ready().await;
    let mut connection = connect(&daemon.embedded_url()).await;
    send(&mut connection, "1", "nobody").await;
    let page = eventually(SOON, "the refusal to be counted", || async {
        let page = daemon.page("/metrics").await?;
        page.contains("crossway_relay_entries_total{outcome=\"refused\"} 1")
            .then_some(page)
    })
    .await;
    assert!(page.contains("crossway_traces_spans_total{result=\"failed\"} 0"));
    assert!(daemon.terminate().await, "{}", daemon.log());
    assert_eq!(collector.spans().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_holds_nothing_up_and_its_loss_is_counted_and_told() {
    let collector = Collector::start(usize::MAX).await;
    let mut daemon = daemon(&collector.at);
    daemon.start_ready().await;
    let mut connection = connect(&daemon.embedded_url()).await;
    let count = 40;
    for number in 0..count {
        send(&mut connection, &number.to_string(), "nobody").await;
    }
    let counted = |line: String| {
        let daemon = &daemon;
        async move {
            eventually(SOON, &line, || async {
                daemon.page("/metrics").await?.contains(&line).then_some(())
            })
            .await;
        }
    };
    counted(format!(
        "crossway_relay_entries_total{{outcome=\"refused\"}} {count}"
    ))
    .await;
    counted(format!(
        "crossway_traces_spans_total{{result=\"failed\"}} {count}"
    ))
    .await;
    assert!(daemon.terminate().await, "{}", daemon.log());
    let log = daemon.log();
    assert_eq!(log.matches("couldn't be exported").count(), 1, "{log}");
    assert!(log.contains("503"), "{log}");
}
