//! What the daemon itself writes into a site's stream.

use std::time::Duration;

use bytes::Bytes;
use crossway_core::address::SiteStream;
use crossway_core::code::Refusal;
use crossway_core::entry::{EntryId, Fields};
use crossway_core::message::Message;
use crossway_transport::streams::{Append, Put};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::options::RelayOptions;

/// How long a reply waits for a caller that polls.
const POLL_TTL: Duration = Duration::from_secs(60);

/// The longest target that an answer repeats, in bytes.
const MAX_ECHO: usize = 256;

/// Whom an answer goes to and what it answers.
#[derive(Clone, Debug)]
pub(crate) struct Addressee {
    pub(crate) stream: SiteStream,
    /// The sender's own request id, or the entry's id where it gave none.
    pub(crate) request_id: String,
    pub(crate) node: String,
}

impl Addressee {
    pub(crate) fn of(message: &Message<'_>, entry: EntryId, stream: &SiteStream) -> Addressee {
        Addressee {
            stream: stream.clone(),
            request_id: message
                .request_id()
                .map_or_else(|| entry.to_string(), str::to_owned),
            node: message.source_node().unwrap_or_default().to_owned(),
        }
    }

    fn append(
        &self,
        options: &RelayOptions,
        now_ms: u64,
        kind: &'static str,
        said: [(&'static str, String); 2],
        code: Option<&'static str>,
    ) -> Append {
        let mut fields = Fields::with_capacity(10);
        fields.push("t", kind);
        fields.push("ri", self.request_id.clone());
        for (name, value) in said {
            fields.push(name, value);
        }
        if let Some(code) = code {
            fields.push("_ec", code);
        }
        fields.push("ds", self.stream.site.as_str().to_owned());
        fields.push("dn", self.node.clone());
        fields.push("ss", options.keyspace.namespace().as_str().to_owned());
        fields.push("sn", Bytes::copy_from_slice(options.node.as_bytes()));
        fields.push("ts", now_ms.to_string());
        Append {
            stream: self.stream.key.clone(),
            fields,
        }
    }

    /// The result of a command that the daemon ran; `kind` is `r` or `br`.
    pub(crate) fn result(
        &self,
        options: &RelayOptions,
        now_ms: u64,
        kind: &'static str,
        result: String,
    ) -> Append {
        self.append(
            options,
            now_ms,
            kind,
            [("st", "ok".to_owned()), ("r", result)],
            None,
        )
    }

    /// A refusal.
    pub(crate) fn refusal(&self, options: &RelayOptions, now_ms: u64, refusal: &Refusal) -> Append {
        let said = [
            ("st", "error".to_owned()),
            ("e", refusal.message.to_string()),
        ];
        let mut told = self.append(options, now_ms, "r", said, Some(refusal.code.as_str()));
        if let Some(ms) = refusal.retry_after_ms {
            told.fields.push("retry_after_ms", ms.to_string());
        }
        told
    }

    /// The acknowledgement that a message was handed over.
    pub(crate) fn acknowledgement(
        &self,
        options: &RelayOptions,
        now_ms: u64,
        relayed: &Relayed<'_>,
    ) -> Append {
        self.result(options, now_ms, "r", crate::directory::to_json(relayed))
    }

    /// What a caller that polls finds under its request id.
    pub(crate) fn poll(&self, options: &RelayOptions, polled: &Polled<'_>) -> Put {
        Put {
            key: options.keyspace.reply(&self.stream, &self.request_id),
            value: crate::directory::to_json(polled).into(),
            ttl: POLL_TTL,
        }
    }

    /// What a caller that polls finds after a refusal.
    pub(crate) fn poll_refusal(
        &self,
        options: &RelayOptions,
        now_ms: u64,
        refusal: &Refusal,
    ) -> Put {
        let error = refusal.to_string();
        self.poll(
            options,
            &Polled {
                id: &self.request_id,
                status: "error",
                result: None,
                error: Some(&error),
                timestamp: now_ms,
            },
        )
    }
}

/// The result in an acknowledgement.
#[derive(Serialize)]
pub(crate) struct Relayed<'a> {
    relayed: bool,
    target: &'a str,
    target_site: &'a str,
    target_entity: &'a str,
    target_stream: &'a str,
    translated: bool,
}

impl<'a> Relayed<'a> {
    /// `target` is as it was asked for.
    pub(crate) fn new(
        target: &'a str,
        entity: &'a str,
        stream: &'a SiteStream,
        translated: bool,
    ) -> Relayed<'a> {
        Relayed {
            relayed: true,
            target,
            target_site: stream.site.as_str(),
            target_entity: entity,
            target_stream: &stream.key,
            translated,
        }
    }
}

/// A reply for a caller that polls.
#[derive(Serialize)]
pub(crate) struct Polled<'a> {
    pub(crate) id: &'a str,
    pub(crate) status: &'static str,
    pub(crate) result: Option<&'a RawValue>,
    pub(crate) error: Option<&'a str>,
    pub(crate) timestamp: u64,
}

/// A text from outside as it is repeated to people: cut where it is long, and without anything that
/// a terminal or a log would take for more than text.
pub(crate) fn echo(text: &str) -> String {
    let cut = text
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|end| *end <= MAX_ECHO)
        .last()
        .unwrap_or_default();
    let shown = text.get(..cut).unwrap_or_default().escape_debug();
    if cut == text.len() {
        shown.to_string()
    } else {
        format!("{shown}… ({} bytes)", text.len())
    }
}
