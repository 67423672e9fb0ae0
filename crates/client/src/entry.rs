//! What an entry on our own stream says to us.

use crate::store::Raw;

/// The first field that is there, of several names for one thing.
fn first<'a>(raw: &'a Raw, names: &[&str]) -> Option<&'a [u8]> {
    names.iter().find_map(|name| {
        raw.fields
            .iter()
            .find(|(key, _)| key == name.as_bytes())
            .map(|(_, value)| value.as_slice())
    })
}

pub(crate) fn text(raw: &Raw, names: &[&str]) -> String {
    first(raw, names)
        .map(|value| String::from_utf8_lossy(value).into_owned())
        .unwrap_or_default()
}

fn kind(raw: &Raw) -> &[u8] {
    first(raw, &["t", "type"]).unwrap_or_default()
}

/// An answer to something that we sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The daemon says that the target has it.
    Relayed,
    /// The daemon didn't let it through.
    Refused { code: String, message: String },
    /// The target did it.
    Done {
        result: String,
        site: String,
        node: String,
    },
    /// The target couldn't.
    Failed {
        code: Option<String>,
        message: String,
    },
}

impl Answer {
    /// Whether nothing more will come.
    pub(crate) fn is_last(&self) -> bool {
        !matches!(self, Answer::Relayed)
    }
}

/// The request id that an entry answers, if it is an answer.
pub(crate) fn answers(raw: &Raw) -> Option<&str> {
    if kind(raw) != b"r" {
        return None;
    }
    first(raw, &["ri"]).and_then(|id| std::str::from_utf8(id).ok())
}

/// What an answer says. `daemon` is the word by which the daemon signs; only it acknowledges and
/// refuses, whatever others put into their results.
pub(crate) fn answer(raw: &Raw, daemon: &str) -> Answer {
    let site = text(raw, &["ss", "source_site", "service_id", "site_id"]);
    let by_daemon = site == daemon;
    let code = text(raw, &["_ec"]);
    if text(raw, &["st", "s", "status"]) == "error" {
        let message = text(raw, &["e", "error"]);
        if by_daemon && !code.is_empty() {
            return Answer::Refused { code, message };
        }
        return Answer::Failed {
            code: Some(code).filter(|code| !code.is_empty()),
            message,
        };
    }
    let result = text(raw, &["r", "result"]);
    if by_daemon && says_relayed(&result) {
        return Answer::Relayed;
    }
    Answer::Done {
        result,
        site,
        node: text(raw, &["sn", "source_node", "node_id", "n"]),
    }
}

fn says_relayed(result: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Acknowledgement {
        relayed: bool,
    }
    serde_json::from_str::<Acknowledgement>(result).is_ok_and(|ack| ack.relayed)
}

/// How an entry concerns a service that answers commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Concern {
    /// A command for us; it wants an answer.
    Command,
    /// Several commands for us, which want one answer.
    Batch,
    /// An event for us; nobody waits for an answer.
    Event,
    /// None of our business: an answer, or something on its way to others.
    Nothing,
}

pub(crate) fn concern(raw: &Raw) -> Concern {
    if first(raw, &["_rt"]).is_some() {
        return Concern::Nothing;
    }
    match kind(raw) {
        b"c" => Concern::Command,
        b"e" => Concern::Event,
        // One that no daemon has put there is this site's own, for the daemon.
        b"bc" if first(raw, &["_rr"]).is_some() => Concern::Batch,
        _ => Concern::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(fields: &[(&str, &str)]) -> Raw {
        Raw {
            id: "1-0".to_owned(),
            fields: fields
                .iter()
                .map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec()))
                .collect(),
        }
    }

    #[test]
    fn only_the_daemon_acknowledges() {
        let by = |site| {
            raw(&[
                ("t", "r"),
                ("ri", "1"),
                ("st", "ok"),
                ("r", r#"{"relayed":true}"#),
                ("ss", site),
            ])
        };
        assert_eq!(answer(&by("gnode"), "gnode"), Answer::Relayed);
        let forged = answer(&by("billing"), "gnode");
        assert!(matches!(forged, Answer::Done { .. }), "{forged:?}");
    }

    #[test]
    fn a_refusal_is_told_from_a_failure_of_the_target() {
        let by = |site| {
            raw(&[
                ("t", "r"),
                ("ri", "1"),
                ("st", "error"),
                ("_ec", "X"),
                ("e", "no"),
                ("ss", site),
            ])
        };
        assert_eq!(
            answer(&by("gnode"), "gnode"),
            Answer::Refused {
                code: "X".into(),
                message: "no".into()
            }
        );
        assert_eq!(
            answer(&by("billing"), "gnode"),
            Answer::Failed {
                code: Some("X".into()),
                message: "no".into()
            }
        );
    }

    #[test]
    fn an_entry_on_its_way_to_others_is_not_a_command_for_us() {
        assert_eq!(
            concern(&raw(&[("t", "c"), ("c", "x"), ("_rt", "b")])),
            Concern::Nothing
        );
        assert_eq!(concern(&raw(&[("t", "c"), ("c", "x")])), Concern::Command);
        assert_eq!(concern(&raw(&[("type", "e"), ("c", "x")])), Concern::Event);
        assert_eq!(concern(&raw(&[("t", "r"), ("ri", "x")])), Concern::Nothing);
        assert_eq!(concern(&raw(&[])), Concern::Nothing);
        assert_eq!(concern(&raw(&[("t", "bc"), ("_rr", "a")])), Concern::Batch);
        assert_eq!(concern(&raw(&[("t", "bc")])), Concern::Nothing);
    }

    #[test]
    fn only_a_response_answers() {
        assert_eq!(answers(&raw(&[("t", "r"), ("ri", "7")])), Some("7"));
        assert_eq!(answers(&raw(&[("t", "c"), ("ri", "7")])), None);
        assert_eq!(answers(&raw(&[("t", "r")])), None);
    }
}
