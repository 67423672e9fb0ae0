//! Telling everybody: one stream for each site, which others read by themselves.

use bytes::Bytes;
use crossway_core::code::{Code, Refusal};
use crossway_core::entry::Fields;
use crossway_core::policy::Action;
use crossway_transport::streams::Append;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Caller, Commands, bad, parse};
use crate::directory::DirectoryError;

/// Events that a broadcast stream keeps, about: some hours of a busy site's, a few MiB.
const KEPT: u64 = 10_000;

/// The longest topic, in bytes.
const MAX_TOPIC: usize = 256;

#[derive(Deserialize)]
struct BroadcastParams<'a> {
    topic: String,
    #[serde(borrow)]
    payload: &'a RawValue,
}

impl Commands<'_> {
    /// The event is written in the step that answers, so it is there once, and only if the
    /// caller is told.
    pub(super) async fn broadcast(
        &self,
        caller: &Caller<'_>,
        params: &[u8],
        writes: &mut Vec<Append>,
    ) -> Result<Value, DirectoryError> {
        let params: BroadcastParams<'_> = parse(params)?;
        let topic = params.topic;
        if topic.is_empty() || topic.len() > MAX_TOPIC || topic.contains(char::is_control) {
            let reason = format!("a topic has 1 to {MAX_TOPIC} bytes without control characters");
            return Err(bad(&reason).into());
        }
        let policy = self.directory.policy();
        let decision = policy.decide_for_all(caller.site, "broadcast");
        if decision.action == Action::Deny {
            let reason = format!("denied by rule {}: {}", decision.rule, decision.reason);
            return Err(Refusal::new(Code::Denied, reason).into());
        }
        let stream = self.directory.options().keyspace.broadcast(caller.stream);
        self.store.trim(&stream, KEPT).await?;
        let id = match writes.len() {
            0 => caller.entry.to_string(),
            before => format!("{}.{before}", caller.entry),
        };
        let mut fields = Fields::with_capacity(7);
        fields.push("t", "e");
        fields.push("i", id);
        fields.push("c", topic.clone());
        fields.push("p", Bytes::copy_from_slice(params.payload.get().as_bytes()));
        fields.push("ss", caller.site.as_str().to_owned());
        fields.push("sn", caller.node.to_owned());
        fields.push("ts", caller.entry.ms.to_string());
        let shown = json!({"topic": topic, "stream": &*stream});
        writes.push(Append { stream, fields });
        Ok(shown)
    }
}
