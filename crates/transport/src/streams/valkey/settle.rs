//! Settlements as calls of the script that carries them out, and its answers as what became of
//! them. No I/O.

use std::collections::HashMap;

use bytes::Bytes;

use super::encode::Outgoing;
use super::frame::Frame;
use crate::streams::{Fence, Key, Put, Settled, Settlement};

/// The script. It runs for about 9 µs for each settlement that adds two entries and puts a key.
pub(crate) const SCRIPT: &str = include_str!("settle.lua");

/// Settlements in one call: the store does nothing else while the script runs, so a call stays
/// around two milliseconds.
const MAX_SETTLEMENTS: usize = 256;
/// Bytes of names and values in one call, for the same reason.
const MAX_BYTES: usize = 1024 * 1024;
/// The most fields of one append. The script hands all of them to one command as its arguments,
/// of which Lua's stack takes about 8000.
const MAX_FIELDS: usize = 3000;

/// One call of the script.
pub(crate) struct Call {
    /// For each number that the script knows a settlement by, its place in the whole list.
    places: Vec<usize>,
    /// The command, ready to be sent.
    pub(crate) pieces: Vec<Bytes>,
}

/// Settlements divided into calls.
pub(crate) struct Plan {
    /// The calls, in order.
    pub(crate) calls: Vec<Call>,
    /// What became of each settlement; what isn't said otherwise is done.
    pub(crate) settled: Vec<Settled>,
}

/// How a call ended as a whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It ran.
    Ran,
    /// The store doesn't know the script.
    Unknown,
    /// The fence didn't hold.
    Fenced,
    /// The store refused it, in its words.
    Refused(String),
    /// The answer isn't one of the script's.
    Nonsense,
}

/// Who settles.
pub(crate) struct Settler<'a> {
    pub(crate) fence: &'a Fence,
    pub(crate) group: &'a str,
    pub(crate) consumer: &'a str,
    /// The script's digest, as the store gave it.
    pub(crate) digest: &'a [u8],
}

impl Settler<'_> {
    /// Divides settlements into calls of bounded size, keeping their order.
    pub(crate) fn plan(&self, settlements: &[Settlement]) -> Plan {
        let mut settled = vec![Settled::Done; settlements.len()];
        let mut calls = Vec::new();
        let (mut chosen, mut bytes) = (Vec::new(), 0_usize);
        for ((place, settlement), outcome) in settlements.iter().enumerate().zip(&mut settled) {
            if let Some(append) = settlement
                .appends
                .iter()
                .find(|append| append.fields.len() > MAX_FIELDS)
            {
                let fields = append.fields.len();
                *outcome = Settled::Failed(format!(
                    "ERR an entry of {fields} fields is more than the {MAX_FIELDS} that can be handed over"
                ));
                continue;
            }
            let size = size(settlement);
            if chosen.len() == MAX_SETTLEMENTS || (bytes + size > MAX_BYTES && !chosen.is_empty()) {
                calls.push(self.call(&chosen));
                chosen.clear();
                bytes = 0;
            }
            bytes = bytes.saturating_add(size);
            chosen.push((place, settlement));
        }
        if !chosen.is_empty() {
            calls.push(self.call(&chosen));
        }
        Plan { calls, settled }
    }

    fn call(&self, chosen: &[(usize, &Settlement)]) -> Call {
        let (bare, full): (Vec<_>, Vec<_>) = chosen
            .iter()
            .partition(|(_, settlement)| settlement.is_bare());
        let bare = by_stream(bare);
        let keys = 1
            + bare.len()
            + full
                .iter()
                .map(|(_, settlement)| keys(settlement))
                .sum::<usize>();
        let values = 6
            + bare
                .iter()
                .map(|(_, entries)| 1 + entries.len())
                .sum::<usize>()
            + full
                .iter()
                .map(|(_, settlement)| values(settlement))
                .sum::<usize>();

        let mut out = Outgoing::default();
        out.command(3 + keys + values)
            .word(b"EVALSHA")
            .word(self.digest)
            .number(count(keys));
        out.word(self.fence.key.as_bytes());
        for (stream, _) in &bare {
            out.word(stream.as_bytes());
        }
        for (_, settlement) in &full {
            out.word(settlement.stream.as_bytes());
            let appends = settlement.appends.iter().map(|append| &append.stream);
            let puts = settlement.puts.iter().map(|put| &put.key);
            for key in settlement.consume.iter().chain(appends).chain(puts) {
                out.word(key.as_bytes());
            }
        }
        for word in [&self.fence.field, &self.fence.value] {
            out.word(word.as_bytes());
        }
        out.word(self.group.as_bytes())
            .word(self.consumer.as_bytes());
        out.number(count(bare.len())).number(count(full.len()));
        let mut places = Vec::with_capacity(chosen.len());
        for (_, entries) in bare {
            out.number(count(entries.len()));
            for (place, settlement) in entries {
                out.id(settlement.entry);
                places.push(place);
            }
        }
        for (place, settlement) in full {
            write(&mut out, settlement);
            places.push(*place);
        }
        Call {
            places,
            pieces: out.pieces(),
        }
    }
}

type Placed<'a> = (usize, &'a Settlement);

/// Groups acknowledgements by stream, in the order in which the streams come.
fn by_stream<'a>(bare: Vec<&Placed<'a>>) -> Vec<(&'a Key, Vec<Placed<'a>>)> {
    let mut streams: Vec<(&Key, Vec<Placed<'a>>)> = Vec::new();
    let mut index: HashMap<&Key, usize> = HashMap::new();
    for (place, settlement) in bare {
        let at = *index.entry(&settlement.stream).or_insert_with(|| {
            streams.push((&settlement.stream, Vec::new()));
            streams.len() - 1
        });
        if let Some((_, entries)) = streams.get_mut(at) {
            entries.push((*place, settlement));
        }
    }
    streams
}

fn write(out: &mut Outgoing, settlement: &Settlement) {
    out.id(settlement.entry);
    out.number(u64::from(settlement.consume.is_some()));
    out.number(count(settlement.appends.len()))
        .number(count(settlement.puts.len()));
    for append in &settlement.appends {
        out.number(count(append.fields.len() * 2));
        for (name, value) in &append.fields {
            out.value(name).value(value);
        }
    }
    for put in &settlement.puts {
        out.number(lifetime(put)).value(&put.value);
    }
}

fn keys(settlement: &Settlement) -> usize {
    1 + usize::from(settlement.consume.is_some()) + settlement.appends.len() + settlement.puts.len()
}

fn values(settlement: &Settlement) -> usize {
    let words = settlement
        .appends
        .iter()
        .map(|append| 1 + 2 * append.fields.len())
        .sum::<usize>();
    4 + words + 2 * settlement.puts.len()
}

fn size(settlement: &Settlement) -> usize {
    let appends = settlement.appends.iter().map(|append| append.fields.size());
    let puts = settlement.puts.iter().map(|put| put.value.len());
    appends.chain(puts).fold(0, usize::saturating_add)
}

/// Milliseconds; the store refuses zero.
fn lifetime(put: &Put) -> u64 {
    u64::try_from(put.ttl.as_millis())
        .unwrap_or(u64::MAX)
        .clamp(1, i64::MAX.unsigned_abs() / 4)
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Enters what the script said about one call.
pub(crate) fn enter(call: &Call, answer: &Frame, settled: &mut [Settled]) -> Outcome {
    match answer {
        Frame::Error(text) if text.starts_with(b"NOSCRIPT") => Outcome::Unknown,
        // Servers before 7 put `ERR ` before the error of a script.
        Frame::Error(text) if text.starts_with(b"FENCED") || text.starts_with(b"ERR FENCED") => {
            Outcome::Fenced
        }
        Frame::Error(text) => Outcome::Refused(String::from_utf8_lossy(text).into_owned()),
        Frame::List(exceptions) => {
            for exception in exceptions.chunks(3) {
                let [
                    Frame::Integer(number),
                    Frame::Integer(kind),
                    Frame::Text(text),
                ] = exception
                else {
                    return Outcome::Nonsense;
                };
                let place = usize::try_from(*number)
                    .ok()
                    .and_then(|number| call.places.get(number));
                let Some(settled) = place.and_then(|place| settled.get_mut(*place)) else {
                    return Outcome::Nonsense;
                };
                *settled = match kind {
                    1 => Settled::NotPending,
                    2 => Settled::Unmet,
                    3 => Settled::Failed(String::from_utf8_lossy(text).into_owned()),
                    _ => return Outcome::Nonsense,
                };
            }
            Outcome::Ran
        }
        _ => Outcome::Nonsense,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::Append;
    use crossway_core::entry::{EntryId, Fields};

    fn settler(fence: &Fence) -> Settler<'_> {
        Settler {
            fence,
            group: "g",
            consumer: "c",
            digest: b"d",
        }
    }

    fn fence() -> Fence {
        Fence {
            key: "members".into(),
            field: "me".to_owned(),
            value: "1".to_owned(),
        }
    }

    fn full(value: usize) -> Settlement {
        let fields: Fields = [("p", vec![0_u8; value])].into_iter().collect();
        let appends = vec![Append {
            stream: "t".into(),
            fields,
        }];
        Settlement {
            appends,
            ..Settlement::acknowledge("s".into(), EntryId::new(1, 0))
        }
    }

    #[test]
    fn calls_are_bounded_by_number_and_by_size() {
        let (fence, lengths) = (fence(), |plan: Plan| {
            plan.calls
                .iter()
                .map(|call| call.places.len())
                .collect::<Vec<_>>()
        });
        assert_eq!(
            lengths(settler(&fence).plan(&vec![full(1); 600])),
            [256, 256, 88]
        );
        assert_eq!(
            lengths(settler(&fence).plan(&vec![full(400 * 1024); 5])),
            [2, 2, 1]
        );
        assert_eq!(
            lengths(settler(&fence).plan(&vec![full(2 * MAX_BYTES); 2])),
            [1, 1]
        );
        assert!(settler(&fence).plan(&[]).calls.is_empty());
    }

    #[test]
    fn an_exception_finds_its_settlement_again() {
        let bare = |stream: &str| Settlement::acknowledge(stream.into(), EntryId::new(2, 0));
        let fence = fence();
        let mut plan = settler(&fence).plan(&[full(1), bare("x"), bare("y"), full(1), bare("x")]);
        let call = &plan.calls[0];
        assert_eq!(call.places, [1, 4, 2, 0, 3]);
        let words = |text: &'static str| Frame::Text(Bytes::from_static(text.as_bytes()));
        let answer = Frame::List(vec![
            Frame::Integer(1),
            Frame::Integer(1),
            words(""),
            Frame::Integer(3),
            Frame::Integer(3),
            words("WRONGTYPE"),
            Frame::Integer(4),
            Frame::Integer(2),
            words(""),
        ]);
        assert_eq!(enter(call, &answer, &mut plan.settled), Outcome::Ran);
        let failed = Settled::Failed("WRONGTYPE".to_owned());
        assert_eq!(
            plan.settled,
            [
                failed,
                Settled::Done,
                Settled::Done,
                Settled::Unmet,
                Settled::NotPending
            ]
        );
    }

    #[test]
    fn an_answer_that_is_not_the_scripts_is_told() {
        let fence = fence();
        let mut plan = settler(&fence).plan(&[full(1)]);
        let call = &plan.calls[0];
        let error = |text: &'static str| Frame::Error(Bytes::from_static(text.as_bytes()));
        for (answer, outcome) in [
            (error("NOSCRIPT No matching script"), Outcome::Unknown),
            (error("FENCED by"), Outcome::Fenced),
            (error("OOM x"), Outcome::Refused("OOM x".to_owned())),
            (Frame::Null, Outcome::Nonsense),
            (
                Frame::List(vec![
                    Frame::Integer(9),
                    Frame::Integer(1),
                    Frame::Text(Bytes::new()),
                ]),
                Outcome::Nonsense,
            ),
            (Frame::List(vec![Frame::Integer(-1)]), Outcome::Nonsense),
        ] {
            assert_eq!(enter(call, &answer, &mut plan.settled), outcome);
        }
    }

    #[test]
    fn more_fields_than_can_be_handed_over_fail_alone() {
        let mut wide = full(1);
        wide.appends[0].fields = (0..=MAX_FIELDS).map(|_| ("a", "b")).collect();
        let fence = fence();
        let plan = settler(&fence).plan(&[full(1), wide]);
        assert_eq!(plan.calls[0].places, [0]);
        assert!(matches!(&plan.settled[1], Settled::Failed(reason) if reason.contains("3001")));
    }
}
