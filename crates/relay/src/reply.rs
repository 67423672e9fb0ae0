//! Bringing an answer home.
//!
//! When a command is handed over, a record of it is written under its delivery id, in the same
//! atomic step. An answer is carried only if it consumes that record, so: once, within the
//! record's lifetime, and only from the site that the command went to. Neither `_rr` nor
//! anything else that a service writes has a say in where it goes.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use crossway_core::address::SiteStream;
use crossway_core::code::{Code, Refusal};
use crossway_core::entry::EntryId;
use crossway_core::format::Formats;
use crossway_core::message::{Label, Message};
use crossway_core::trace::TraceParent;
use crossway_transport::streams::{Append, Put, Settlement};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::answers::{Addressee, Polled};
use crate::directory::to_json;
use crate::options::RelayOptions;
use crate::translation::{Languages, Translation};

/// A relay that waits for its reply, as it lies on the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The stream that the command came from.
    #[serde(rename = "f")]
    from: String,
    /// The request id that its sender knows it by.
    #[serde(rename = "i")]
    request_id: String,
    /// The sender's node.
    #[serde(rename = "n", default, skip_serializing_if = "String::is_empty")]
    node: String,
    /// The stream that it went to.
    #[serde(rename = "t")]
    to: String,
    /// The formats of both, where the command was translated.
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    languages: Option<Languages>,
    /// The span of the crossing, where that is recorded.
    #[serde(rename = "tp", default, skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
}

impl Record {
    /// The record of a relay, to be written beside it.
    pub(crate) fn put(
        options: &RelayOptions,
        sender: &Addressee,
        to: &SiteStream,
        delivery: &str,
        languages: Option<&Languages>,
        trace: Option<TraceParent>,
    ) -> Put {
        let record = Record {
            from: sender.stream.key.to_string(),
            request_id: sender.request_id.clone(),
            node: sender.node.clone(),
            to: to.key.to_string(),
            languages: languages.cloned(),
            trace: trace.map(|trace| trace.to_string()),
        };
        Put {
            key: options.keyspace.awaited(delivery),
            value: to_json(&record).into(),
            ttl: options.reply_ttl,
        }
    }

    pub(crate) fn parse(value: &[u8]) -> Option<Record> {
        serde_json::from_slice(value).ok()
    }

    /// The span of the crossing that the answer belongs to, where that was recorded.
    pub(crate) fn trace(&self) -> Option<TraceParent> {
        self.trace.as_ref()?.parse().ok()
    }

    /// Who waits, if `answering` is the site that was asked.
    fn sender(&self, options: &RelayOptions, answering: &SiteStream) -> Option<Addressee> {
        let asked = options.keyspace.parse_unified(&self.to).ok()?;
        if (&asked.site, &asked.environment) != (&answering.site, &answering.environment) {
            return None;
        }
        let stream = options.keyspace.parse_unified(&self.from).ok()?;
        Some(Addressee {
            stream,
            request_id: self.request_id.clone(),
            node: self.node.clone(),
        })
    }
}

/// An answer, and what is known of the relay it claims to answer.
pub(crate) struct Answer<'a> {
    pub(crate) message: &'a Message<'a>,
    pub(crate) entry: EntryId,
    pub(crate) from: &'a SiteStream,
    pub(crate) delivery: &'a str,
    pub(crate) record: &'a Record,
    /// The span of its own crossing, where that is recorded.
    pub(crate) trace: Option<TraceParent>,
}

impl Answer<'_> {
    /// Its result in the language that the command was written in.
    pub(crate) fn translation(&self, formats: &Formats) -> Translation {
        Translation::of_result(
            formats,
            self.record.languages.as_ref(),
            self.message.result(),
        )
    }

    /// The step that carries it home, or `None` where it answers for somebody else. `translated`
    /// is its result in the sender's format, where that isn't how it came.
    pub(crate) fn carry(
        &self,
        options: &RelayOptions,
        translated: Option<Bytes>,
        now_ms: u64,
    ) -> Option<Settlement> {
        let sender = self.record.sender(options, self.from)?;
        let label = Label {
            delivery: Bytes::copy_from_slice(self.delivery.as_bytes()),
            source_site: Bytes::copy_from_slice(self.from.site.as_str().as_bytes()),
            dest_site: Bytes::copy_from_slice(sender.stream.site.as_str().as_bytes()),
            dest_entity: Bytes::copy_from_slice(sender.node.as_bytes()),
            reply_to: Bytes::new(),
            now_ms,
            translated,
            trace: self.trace,
        };
        let fields = self
            .message
            .carry_home(&label, Bytes::copy_from_slice(sender.request_id.as_bytes()));
        let appends = vec![Append {
            stream: sender.stream.key.clone(),
            fields,
        }];
        let result = label.translated.as_ref().or(self.message.result());
        let puts = vec![self.polled(options, &sender, result, now_ms)];
        Some(self.settlement(options, appends, puts))
    }

    /// The step that tells the sender that the answer can't be carried.
    pub(crate) fn fail(
        &self,
        options: &RelayOptions,
        now_ms: u64,
        refusal: &Refusal,
    ) -> Option<Settlement> {
        let sender = self.record.sender(options, self.from)?;
        let appends = vec![sender.refusal(options, now_ms, refusal)];
        let puts = vec![sender.poll_refusal(options, now_ms, refusal)];
        Some(self.settlement(options, appends, puts))
    }

    fn settlement(
        &self,
        options: &RelayOptions,
        appends: Vec<Append>,
        puts: Vec<Put>,
    ) -> Settlement {
        let consume = Some(options.keyspace.awaited(self.delivery));
        Settlement {
            stream: self.from.key.clone(),
            entry: self.entry,
            consume,
            appends,
            puts,
        }
    }

    fn polled(
        &self,
        options: &RelayOptions,
        sender: &Addressee,
        result: Option<&Bytes>,
        now_ms: u64,
    ) -> Put {
        let result = result.map(|result| as_json(result));
        let status = if self.message.succeeded() {
            "ok"
        } else {
            "error"
        };
        let error = self.message.error();
        sender.poll(
            options,
            &Polled {
                id: &sender.request_id,
                status,
                result: result.as_deref(),
                error,
                timestamp: now_ms,
            },
        )
    }
}

/// A result for callers that poll, who always find JSON: what isn't JSON is given as a string,
/// and what isn't text as one in base64.
fn as_json(result: &[u8]) -> Box<RawValue> {
    if let Ok(value) = serde_json::from_slice(result) {
        return value;
    }
    let quoted = match std::str::from_utf8(result) {
        Ok(text) => serde_json::value::to_raw_value(text),
        Err(_) => serde_json::value::to_raw_value(&BASE64_STANDARD.encode(result)),
    };
    quoted.unwrap_or_default()
}

/// The refusal for an answer that is over the limits.
pub(crate) fn too_large(bytes: u64) -> Refusal {
    Refusal::new(
        Code::TooLarge,
        format!("the answer has {bytes} bytes, which is over this daemon's limit"),
    )
}
