//! Spans in the words of OTLP.

use axum::body::Bytes;
use crossway_core::trace::{Attribute, Span, Value};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as Wire, Status};
use prost::Message;

/// Flags of a span: its parent may be in another process, and that is known.
const PARENT_IS_REMOTE: u32 = 0x0300;

/// Who sends spans.
pub(super) struct Sender {
    resource: Resource,
    scope: InstrumentationScope,
}

impl Sender {
    pub(super) fn new(service: &str, node: &str) -> Sender {
        let version = env!("CARGO_PKG_VERSION");
        let attributes = [
            ("service.name", service),
            ("service.instance.id", node),
            ("service.version", version),
        ];
        Sender {
            resource: Resource {
                attributes: attributes
                    .map(|(name, text)| pair(name, Any::StringValue(text.to_owned())))
                    .into(),
                ..Resource::default()
            },
            scope: InstrumentationScope {
                name: "crossway".to_owned(),
                version: version.to_owned(),
                ..InstrumentationScope::default()
            },
        }
    }

    /// The body of a request that exports these spans.
    pub(super) fn request(&self, spans: Vec<Span>) -> Bytes {
        let scope_spans = vec![ScopeSpans {
            scope: Some(self.scope.clone()),
            spans: spans.into_iter().map(wire).collect(),
            ..ScopeSpans::default()
        }];
        let resource_spans = vec![ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans,
            ..ResourceSpans::default()
        }];
        ExportTraceServiceRequest { resource_spans }
            .encode_to_vec()
            .into()
    }
}

fn wire(span: Span) -> Wire {
    let event = |event: crossway_core::trace::Event| Event {
        time_unix_nano: event.at_ns,
        name: event.name.to_owned(),
        attributes: attributes(event.attributes),
        ..Event::default()
    };
    Wire {
        trace_id: span.context.trace.bytes().to_vec(),
        span_id: span.context.span.bytes().to_vec(),
        parent_span_id: span.parent.map_or_else(Vec::new, |id| id.bytes().to_vec()),
        flags: u32::from(span.context.flags()) | PARENT_IS_REMOTE,
        name: span.name,
        kind: SpanKind::Consumer.into(),
        start_time_unix_nano: span.start_ns,
        end_time_unix_nano: span.end_ns,
        attributes: attributes(span.attributes),
        events: span.events.into_iter().map(event).collect(),
        status: span.failure.map(|message| Status {
            message,
            code: StatusCode::Error.into(),
        }),
        ..Wire::default()
    }
}

fn attributes(known: Vec<Attribute>) -> Vec<KeyValue> {
    known
        .into_iter()
        .map(|known| {
            let value = match known.value {
                Value::Text(text) => Any::StringValue(text.into_owned()),
                Value::Number(number) => Any::IntValue(number),
            };
            pair(known.name, value)
        })
        .collect()
}

fn pair(name: &str, value: Any) -> KeyValue {
    KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
