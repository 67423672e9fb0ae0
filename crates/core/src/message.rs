//! The meaning of an entry's fields on the relay plane.
//!
//! Every field has one name that is written and some that are accepted when reading; where
//! several are there the first of the list counts. What a message is passed on as is written
//! here too, so that the list of names stands in one file.

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::Bytes;

use crate::code::{self, Code, Refusal};
use crate::entry::Fields;
use crate::trace::TraceParent;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One command.
    Command,
    /// Several commands, run in order.
    BatchCommand,
    /// The answer to a command.
    Response,
    /// The answers to a batch.
    BatchResponse,
    /// Something that happened; nobody answers.
    Event,
}

impl Kind {
    fn parse(text: &[u8]) -> Option<Kind> {
        Some(match text {
            b"c" => Kind::Command,
            b"bc" => Kind::BatchCommand,
            b"r" => Kind::Response,
            b"br" => Kind::BatchResponse,
            b"e" => Kind::Event,
            _ => return None,
        })
    }

    /// As it is written in `t`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Command => "c",
            Kind::BatchCommand => "bc",
            Kind::Response => "r",
            Kind::BatchResponse => "br",
            Kind::Event => "e",
        }
    }

    /// Whether it answers something.
    #[must_use]
    pub const fn is_answer(self) -> bool {
        matches!(self, Kind::Response | Kind::BatchResponse)
    }

    /// Whether somebody waits for an answer to it.
    #[must_use]
    pub const fn wants_answer(self) -> bool {
        matches!(self, Kind::Command | Kind::BatchCommand)
    }
}

/// The longest request id that is answered by it, in bytes; a longer one is no id.
pub const MAX_REQUEST_ID: usize = 512;

/// What a field means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    Kind,
    RequestId,
    Command,
    Params,
    SourceSite,
    SourceNode,
    DestSite,
    DestNode,
    Status,
    Result,
    Error,
    Answers,
    Timestamp,
    Target,
    ReplyTo,
    OriginalId,
    ErrorCode,
    Carried,
    Trace,
}

const SLOTS: usize = 19;

/// The slot of a field name and its rank among the names of that slot; lower counts first.
fn slot(name: &[u8], answer: bool) -> Option<(Slot, u8)> {
    Some(match name {
        b"t" => (Slot::Kind, 0),
        b"type" => (Slot::Kind, 1),
        b"i" => (Slot::RequestId, 0),
        b"id" => (Slot::RequestId, 1),
        b"request_id" => (Slot::RequestId, 2),
        b"c" => (Slot::Command, 0),
        b"cmd" => (Slot::Command, 1),
        b"command" => (Slot::Command, 2),
        b"command_name" => (Slot::Command, 3),
        b"p" => (Slot::Params, 0),
        b"params" => (Slot::Params, 1),
        b"parameters" => (Slot::Params, 2),
        b"ss" => (Slot::SourceSite, 0),
        b"source_site" => (Slot::SourceSite, 1),
        b"service_id" => (Slot::SourceSite, 2),
        b"site_id" => (Slot::SourceSite, 3),
        b"st" if !answer => (Slot::SourceSite, 4),
        b"sn" => (Slot::SourceNode, 0),
        b"source_node" => (Slot::SourceNode, 1),
        b"node_id" => (Slot::SourceNode, 2),
        b"n" => (Slot::SourceNode, 3),
        b"ds" => (Slot::DestSite, 0),
        b"dest_site" => (Slot::DestSite, 1),
        b"dn" => (Slot::DestNode, 0),
        b"dest_node" => (Slot::DestNode, 1),
        b"st" => (Slot::Status, 0),
        b"s" if answer => (Slot::Status, 1),
        b"status" if answer => (Slot::Status, 2),
        b"r" if answer => (Slot::Result, 0),
        b"result" if answer => (Slot::Result, 1),
        b"e" if answer => (Slot::Error, 0),
        b"error" if answer => (Slot::Error, 1),
        b"ri" if answer => (Slot::Answers, 0),
        b"ts" => (Slot::Timestamp, 0),
        b"timestamp" => (Slot::Timestamp, 1),
        b"_rt" => (Slot::Target, 0),
        b"_rr" => (Slot::ReplyTo, 0),
        b"_oi" => (Slot::OriginalId, 0),
        b"_ec" => (Slot::ErrorCode, 0),
        b"_cr" => (Slot::Carried, 0),
        b"tp" => (Slot::Trace, 0),
        b"traceparent" => (Slot::Trace, 1),
        _ => return None,
    })
}

/// An entry whose fields have been understood. It borrows from the entry and copies nothing.
pub struct Message<'a> {
    fields: &'a Fields,
    kind: Option<Kind>,
    /// Index of the field that counts for each slot.
    at: [Option<usize>; SLOTS],
    flaw: Option<Refusal>,
}

impl<'a> Message<'a> {
    /// Understands an entry. It always succeeds, so that a faulty entry can still be answered;
    /// [`Message::flaw`] tells what is wrong with it.
    #[must_use]
    pub fn read(fields: &'a Fields) -> Message<'a> {
        let typed = fields.get(b"t").or_else(|| fields.get(b"type"));
        let kind = typed.and_then(|text| Kind::parse(text));
        let answer = kind.is_some_and(Kind::is_answer);
        let mut at = [None; SLOTS];
        let mut ranks = [u8::MAX; SLOTS];
        let mut flaw = None;
        for (index, (name, value)) in fields.iter().enumerate() {
            let found = slot(name, answer);
            // What is carried untouched may be in any format; the rest is read here, and is text.
            let body = matches!(found, Some((Slot::Params | Slot::Result, _)));
            let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
            if flaw.is_none() && !(is_text(name) && (body || is_text(value))) {
                let message = format!(
                    "field {} of the entry, {}, isn't UTF-8",
                    index + 1,
                    printable(name)
                );
                flaw = Some(Refusal::new(Code::Malformed, message));
            }
            if let Some((slot, rank)) = found
                && let (Some(best), Some(place)) =
                    (ranks.get_mut(slot as usize), at.get_mut(slot as usize))
                && rank < *best
            {
                *best = rank;
                *place = Some(index);
            }
        }
        let mut message = Message {
            fields,
            kind,
            at,
            flaw,
        };
        if message.flaw.is_none() {
            message.flaw = message.missing();
        }
        message
    }

    fn missing(&self) -> Option<Refusal> {
        let refuse = |text: &'static str| Some(Refusal::new(Code::Malformed, text));
        match self.kind {
            None if self.value(Slot::Kind).is_none() => refuse("the entry has no type in `t`"),
            None => refuse("the entry's type in `t` isn't one of c, r, bc, br, e"),
            Some(Kind::Command | Kind::Event) if self.command().is_empty() => {
                refuse("the entry names no command in `c`")
            }
            Some(_)
                if self
                    .value(Slot::RequestId)
                    .is_some_and(|id| id.len() > MAX_REQUEST_ID) =>
            {
                refuse("the request id in `i` is longer than 512 bytes")
            }
            Some(_) => None,
        }
    }

    fn value(&self, slot: Slot) -> Option<&'a Bytes> {
        let index = self.at.get(slot as usize).copied().flatten()?;
        self.fields.iter().nth(index).map(|(_, value)| value)
    }

    fn text(&self, slot: Slot) -> Option<&'a str> {
        self.value(slot)
            .and_then(|value| std::str::from_utf8(value).ok())
    }

    /// What it is, `None` where its type says nothing.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// What is wrong with it, if anything.
    #[must_use]
    pub fn flaw(&self) -> Option<&Refusal> {
        self.flaw.as_ref()
    }

    /// The request id, where it gave a usable one.
    #[must_use]
    pub fn request_id(&self) -> Option<&'a str> {
        self.text(Slot::RequestId)
            .filter(|id| !id.is_empty() && id.len() <= MAX_REQUEST_ID)
    }

    /// The command's name, empty where there is none.
    #[must_use]
    pub fn command(&self) -> &'a str {
        self.text(Slot::Command).unwrap_or_default()
    }

    /// The parameters, as they lay there.
    #[must_use]
    pub fn params(&self) -> Option<&'a Bytes> {
        self.value(Slot::Params)
    }

    /// The site it claims to come from.
    #[must_use]
    pub fn claimed_site(&self) -> Option<&'a str> {
        self.text(Slot::SourceSite)
    }

    /// The node it comes from, within its site.
    #[must_use]
    pub fn source_node(&self) -> Option<&'a str> {
        self.text(Slot::SourceNode)
    }

    /// The relay target; its presence is what makes an entry a relay.
    #[must_use]
    pub fn target(&self) -> Option<Cow<'a, str>> {
        self.value(Slot::Target)
            .map(|text| String::from_utf8_lossy(text))
    }

    /// Of a command or event: whether a daemon has put it into the stream it stands in. A site
    /// may claim so of its own entries, and only loses by it.
    #[must_use]
    pub fn was_forwarded(&self) -> bool {
        self.value(Slot::ReplyTo).is_some()
    }

    /// Of an answer: whether a daemon has put it into the stream it stands in, so that it isn't
    /// taken for an answer by that stream's site.
    #[must_use]
    pub fn was_carried(&self) -> bool {
        self.value(Slot::Carried).is_some()
    }

    /// Of an answer: the id it answers.
    #[must_use]
    pub fn answers(&self) -> Option<&'a str> {
        self.text(Slot::Answers)
    }

    /// Of an answer: whether it tells of success; a missing status is one, unless it has an error.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        match self.text(Slot::Status) {
            Some(status) => status == "ok" || status == "success",
            None => self.value(Slot::Error).is_none(),
        }
    }

    /// Of an answer: the result, as it lay there.
    #[must_use]
    pub fn result(&self) -> Option<&'a Bytes> {
        self.value(Slot::Result)
    }

    /// Of an answer: the error's sentence.
    #[must_use]
    pub fn error(&self) -> Option<&'a str> {
        self.text(Slot::Error)
    }

    /// The trace context.
    #[must_use]
    pub fn traceparent(&self) -> Option<&'a str> {
        self.text(Slot::Trace)
    }

    /// The fields' names, for a log line; values are never shown.
    #[must_use]
    pub fn names(&self) -> String {
        let mut names = String::new();
        for (name, _) in self.fields.iter().take(32) {
            let _ = write!(
                names,
                "{}{}",
                if names.is_empty() { "" } else { "," },
                printable(name)
            );
        }
        if self.fields.len() > 32 {
            let _ = write!(names, ",… {} more", self.fields.len() - 32);
        }
        names
    }

    /// The entry that its target is given: addressed, its source told truly, with a delivery id
    /// of its own, everything else as it came.
    #[must_use]
    pub fn forward(&self, label: &Label) -> Fields {
        let mut out = Fields::with_capacity(self.fields.len() + 6);
        out.push("t", self.kind.unwrap_or(Kind::Command).as_str());
        out.push("i", label.delivery.clone());
        self.copy(&mut out, Slot::Command, "c");
        self.body(&mut out, Slot::Params, "p", label);
        out.push("ss", label.source_site.clone());
        self.copy(&mut out, Slot::SourceNode, "sn");
        out.push("ds", label.dest_site.clone());
        out.push("dn", label.dest_entity.clone());
        out.push("_rr", label.reply_to.clone());
        if let Some(id) = self.value(Slot::RequestId) {
            out.push("_oi", id.clone());
        }
        self.timestamp(&mut out, label.now_ms);
        self.trace(&mut out, label);
        self.rest(&mut out);
        out
    }

    /// The entry that a sender is given as the reply to its command `request_id`.
    #[must_use]
    pub fn carry_home(&self, label: &Label, request_id: Bytes) -> Fields {
        let mut out = Fields::with_capacity(self.fields.len() + 4);
        out.push("t", self.kind.unwrap_or(Kind::Response).as_str());
        out.push("ri", request_id);
        // As whoever polls is told it, whatever word the service has for it.
        out.push("st", if self.succeeded() { "ok" } else { "error" });
        self.body(&mut out, Slot::Result, "r", label);
        self.copy(&mut out, Slot::Error, "e");
        if let Some(code) = self.value(Slot::ErrorCode) {
            out.push("_ec", code::of_service(code));
        }
        out.push("_cr", label.delivery.clone());
        self.copy(&mut out, Slot::RequestId, "i");
        self.copy(&mut out, Slot::Command, "c");
        self.copy(&mut out, Slot::Params, "p");
        out.push("ss", label.source_site.clone());
        self.copy(&mut out, Slot::SourceNode, "sn");
        out.push("ds", label.dest_site.clone());
        out.push("dn", label.dest_entity.clone());
        self.timestamp(&mut out, label.now_ms);
        self.trace(&mut out, label);
        self.rest(&mut out);
        out
    }

    fn copy(&self, out: &mut Fields, slot: Slot, name: &'static str) {
        if let Some(value) = self.value(slot) {
            out.push(name, value.clone());
        }
    }

    fn body(&self, out: &mut Fields, slot: Slot, name: &'static str, label: &Label) {
        match &label.translated {
            Some(translated) => out.push(name, translated.clone()),
            None => self.copy(out, slot, name),
        }
    }

    fn trace(&self, out: &mut Fields, label: &Label) {
        match &label.trace {
            Some(context) => out.push("tp", context.to_string()),
            None => self.copy(out, Slot::Trace, "tp"),
        }
    }

    fn timestamp(&self, out: &mut Fields, now_ms: u64) {
        match self.value(Slot::Timestamp) {
            Some(given) => out.push("ts", given.clone()),
            None => out.push("ts", now_ms.to_string()),
        }
    }

    /// Fields that mean nothing to a relay go on as they are.
    fn rest(&self, out: &mut Fields) {
        let answer = self.kind.is_some_and(Kind::is_answer);
        for (name, value) in self.fields {
            if slot(name, answer).is_none() {
                out.push(name.clone(), value.clone());
            }
        }
    }
}

/// What is written on an entry that is passed on.
pub struct Label {
    /// The delivery id: of a command its id at the receiver, of a reply what it answered there.
    pub delivery: Bytes,
    /// The true source.
    pub source_site: Bytes,
    /// The receiving site.
    pub dest_site: Bytes,
    /// The receiving entity or node, empty where the site itself is addressed.
    pub dest_entity: Bytes,
    /// The source's stream.
    pub reply_to: Bytes,
    /// The time now, milliseconds since the epoch, for an entry that gives none.
    pub now_ms: u64,
    /// The parameters of a command or the result of an answer in the receiver's format, where
    /// they were translated; otherwise they go on as they came.
    pub translated: Option<Bytes>,
    /// The span of its crossing, where that is recorded; otherwise its trace context goes on as it came.
    pub trace: Option<TraceParent>,
}

/// A field name fit for a log line: at most 40 bytes, control characters escaped.
fn printable(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name.get(..40).unwrap_or(name));
    text.escape_debug().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(pairs: &[(&'static str, &'static str)]) -> Fields {
        pairs.iter().copied().collect()
    }

    fn label() -> Label {
        Label {
            delivery: "D".into(),
            source_site: "a".into(),
            dest_site: "b".into(),
            dest_entity: "".into(),
            reply_to: "a:gnode:unified:testing".into(),
            now_ms: 7,
            translated: None,
            trace: None,
        }
    }

    #[test]
    fn an_answer_says_ok_or_error_and_is_never_taken_for_a_refusal() {
        let carried = |pairs: &[(&'static str, &'static str)]| {
            let given: Fields = [("t", "r")].iter().chain(pairs).copied().collect();
            let out = Message::read(&given).carry_home(&label(), "mine".into());
            let text = |name: &[u8]| {
                let value = out.get(name).map(|value| value.to_vec());
                String::from_utf8(value.unwrap_or_default()).unwrap()
            };
            (text(b"st"), text(b"_ec"))
        };
        let pair = |st: &str, ec: &str| (st.to_owned(), ec.to_owned());
        assert_eq!(carried(&[]), pair("ok", ""));
        assert_eq!(carried(&[("status", "success")]), pair("ok", ""));
        assert_eq!(carried(&[("st", "whatever")]), pair("error", ""));
        assert_eq!(carried(&[("e", "no")]), pair("error", ""));
        let own = [("st", "error"), ("_ec", "NO_MONEY")];
        assert_eq!(carried(&own), pair("error", "NO_MONEY"));
        let forged = [("st", "error"), ("_ec", "RELAY.DENIED")];
        assert_eq!(carried(&forged), pair("error", "SERVICE.RELAY.DENIED"));
    }

    #[test]
    fn of_several_names_the_first_of_the_list_counts() {
        let fields = fields(&[
            ("request_id", "3"),
            ("id", "2"),
            ("type", "c"),
            ("command", "late"),
            ("cmd", "early"),
        ]);
        let message = Message::read(&fields);
        assert_eq!(message.request_id(), Some("2"));
        assert_eq!(message.command(), "early");
        assert_eq!(message.kind(), Some(Kind::Command));
        assert!(message.flaw().is_none());
    }

    #[test]
    fn st_is_a_source_on_commands_and_a_status_on_answers() {
        let command = fields(&[("t", "c"), ("c", "x"), ("st", "a"), ("status", "carried")]);
        assert_eq!(Message::read(&command).claimed_site(), Some("a"));
        let answer = fields(&[("t", "r"), ("ri", "1"), ("st", "error")]);
        assert!(!Message::read(&answer).succeeded());
        assert_eq!(Message::read(&answer).claimed_site(), None);
    }

    #[test]
    fn a_forwarded_entry_says_the_truth_and_carries_the_rest_in_order() {
        let given = fields(&[
            ("t", "c"),
            ("x", "1"),
            ("i", "mine"),
            ("c", "go"),
            ("command", "other"),
            ("p", "{}"),
            ("ss", "forged"),
            ("_rr", "forged"),
            ("_rr", "again"),
            ("_rt", "b"),
            ("_oi", "forged"),
            ("x", "2"),
            ("traceparent", "00-1"),
        ]);
        let out = Message::read(&given).forward(&label());
        let want = fields(&[
            ("t", "c"),
            ("i", "D"),
            ("c", "go"),
            ("p", "{}"),
            ("ss", "a"),
            ("ds", "b"),
            ("dn", ""),
            ("_rr", "a:gnode:unified:testing"),
            ("_oi", "mine"),
            ("ts", "7"),
            ("tp", "00-1"),
            ("x", "1"),
            ("x", "2"),
        ]);
        assert_eq!(out, want);
    }

    #[test]
    fn a_reply_goes_home_under_the_senders_id_and_without_routing() {
        let given = fields(&[
            ("t", "r"),
            ("ri", "D"),
            ("status", "ok"),
            ("result", "1"),
            ("ss", "forged"),
            ("_rr", "x"),
            ("_rt", "c"),
            ("k", "v"),
        ]);
        let out = Message::read(&given).carry_home(&label(), "mine".into());
        let want = fields(&[
            ("t", "r"),
            ("ri", "mine"),
            ("st", "ok"),
            ("r", "1"),
            ("_cr", "D"),
            ("ss", "a"),
            ("ds", "b"),
            ("dn", ""),
            ("ts", "7"),
            ("k", "v"),
        ]);
        assert_eq!(out, want);
    }

    #[test]
    fn bytes_that_are_not_text_are_a_flaw_that_names_the_field() {
        let mut given = fields(&[("t", "c"), ("c", "x")]);
        given.push("sn", &b"\xff"[..]);
        let message = Message::read(&given);
        let flaw = message.flaw().unwrap();
        assert_eq!(flaw.code, Code::Malformed);
        assert!(
            flaw.message.contains("field 3") && flaw.message.contains("sn"),
            "{flaw}"
        );
    }

    #[test]
    fn a_body_in_a_binary_format_is_no_flaw_and_goes_on_as_it_is() {
        let mut command = fields(&[("t", "c"), ("c", "x")]);
        command.push("params", &b"\x81\xff"[..]);
        let message = Message::read(&command);
        assert!(message.flaw().is_none());
        assert_eq!(
            message.forward(&label()).get(b"p").unwrap(),
            &b"\x81\xff"[..]
        );
        let mut answer = fields(&[("t", "r"), ("ri", "D")]);
        answer.push("r", &b"\x81\xff"[..]);
        let message = Message::read(&answer);
        assert!(message.flaw().is_none());
        let home = message.carry_home(&label(), "mine".into());
        assert_eq!(home.get(b"r").unwrap(), &b"\x81\xff"[..]);
    }

    #[test]
    fn a_translated_body_takes_the_place_of_what_came() {
        let label = Label {
            translated: Some("new".into()),
            ..label()
        };
        let command = fields(&[("t", "c"), ("c", "x"), ("parameters", "old")]);
        let forwarded = Message::read(&command).forward(&label);
        assert_eq!(forwarded.get(b"p").unwrap(), "new");
        assert_eq!(forwarded.get(b"parameters"), None);
        let answer = fields(&[("t", "r"), ("ri", "D"), ("result", "old")]);
        let home = Message::read(&answer).carry_home(&label, "mine".into());
        assert_eq!(home.get(b"r").unwrap(), "new");
        assert_eq!(home.get(b"result"), None);
    }

    proptest! {
        #[test]
        fn no_fields_make_the_reader_panic_and_none_are_invented(pairs in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..6), prop::collection::vec(any::<u8>(), 0..12)), 0..12)) {
            let given: Fields = pairs.into_iter().collect();
            let message = Message::read(&given);
            let _ = (message.names(), message.target(), message.request_id(), message.flaw().cloned());
            let out = message.forward(&label());
            for (name, value) in &out {
                let known = slot(name, message.kind().is_some_and(Kind::is_answer)).is_some();
                prop_assert!(known || given.iter().any(|field| field.0 == name && field.1 == value));
            }
        }

        #[test]
        fn parameters_pass_byte_for_byte(p in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut given = fields(&[("t", "c"), ("c", "x")]);
            given.push("parameters", p.clone());
            let out = Message::read(&given).forward(&label());
            prop_assert_eq!(out.get(b"p").map(|value| value.to_vec()), Some(p));
        }
    }
}
