//! Settlements as calls of the script that carries them out, and its answers as what became of
//! them. No I/O.

use std::collections::HashMap;

use bytes::Bytes;
use crossway_core::entry::Fields;

use super::encode::Outgoing;
use super::frame::Frame;
use crate::streams::{Append, Fence, Key, Put, Settled, Settlement};

/// The script.
pub(crate) const SCRIPT: &str = concat!(include_str!("fence.lua"), include_str!("settle.lua"));
/// The script where the fence can't be asked in the same step. It is given a fence all the same.
pub(crate) const UNFENCED: &str = include_str!("settle.lua");

/// Settlements in one call: the store does nothing else while the script runs, so a call stays
/// around two milliseconds.
pub(crate) const MAX_SETTLEMENTS: usize = 256;
/// Bytes of names and values in one call, for the same reason.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;
/// The most fields of one append. The script hands all of them to one command as its arguments,
/// of which Lua's stack takes about 8000.
pub(crate) const MAX_FIELDS: usize = 3000;
/// From so many settlements on, looking whether the script's own entries can be passed over costs
/// less than reading them back.
const MANY: usize = 8;

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
    /// How the script is named: by its digest (`EVALSHA`) or by its text (`EVAL`).
    pub(crate) command: &'static str,
    /// The script's digest, as the store gave it, or its text.
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
        let mut keys = Numbers::new(&self.fence.key);
        let shapes = Shapes::of(full.iter().map(|(_, settlement)| *settlement));
        let mut words = Words::default();
        for word in [
            &*self.fence.field,
            &*self.fence.value,
            self.group,
            self.consumer,
        ] {
            words.word(word.as_bytes());
        }
        for count in [bare.len(), shapes.list.len(), full.len(), MANY] {
            words.number(count);
        }
        let mut places = Vec::with_capacity(chosen.len());
        for (stream, entries) in bare {
            words.number(keys.of(stream));
            words.number(entries.len());
            for (place, settlement) in entries {
                words.id(settlement);
                places.push(place);
            }
        }
        for shape in &shapes.list {
            shape.write(keys.of(shape.stream), &mut words);
        }
        let mut shape_of = shapes.order.iter();
        for (place, settlement) in full {
            write(settlement, &shapes, &mut shape_of, &mut keys, &mut words);
            places.push(*place);
        }
        let mut out = Outgoing::default();
        out.command(3 + keys.list.len() + words.count)
            .word(self.command.as_bytes())
            .word(self.digest)
            .number(number(keys.list.len()));
        for key in &keys.list {
            out.word(key.as_bytes());
        }
        out.append(words.out);
        Call {
            places,
            pieces: out.pieces(),
        }
    }
}

/// The script's arguments, written and counted.
#[derive(Default)]
struct Words {
    out: Outgoing,
    count: usize,
}

impl Words {
    fn word(&mut self, word: &[u8]) {
        self.out.word(word);
        self.count += 1;
    }

    fn value(&mut self, value: &Bytes) {
        self.out.value(value);
        self.count += 1;
    }

    fn number(&mut self, count: usize) {
        self.out.number(number(count));
        self.count += 1;
    }

    fn id(&mut self, settlement: &Settlement) {
        self.out.id(settlement.entry);
        self.count += 1;
    }
}

/// Keys by the number that the script knows them by, from 1.
struct Numbers<'a> {
    list: Vec<&'a Key>,
    numbers: HashMap<&'a str, usize>,
}

impl<'a> Numbers<'a> {
    fn new(first: &'a Key) -> Numbers<'a> {
        Numbers {
            list: vec![first],
            numbers: HashMap::new(),
        }
    }

    fn of(&mut self, key: &'a Key) -> usize {
        *self.numbers.entry(key).or_insert_with(|| {
            self.list.push(key);
            self.list.len()
        })
    }
}

/// What the entries of one stream with the same field names have in common.
struct Shape<'a> {
    stream: &'a Key,
    first: &'a Fields,
    /// For each field, whether its values differ.
    differs: Vec<bool>,
}

impl Shape<'_> {
    fn fits(&self, append: &Append) -> bool {
        let names = self.first.iter().zip(&append.fields);
        *self.stream == append.stream && self.first.len() == append.fields.len() && { names }
            .all(|((first, _), (name, _))| first == name)
    }

    fn compare(&mut self, append: &Append) {
        let values = self.first.iter().zip(&append.fields);
        for (differs, ((_, first), (_, value))) in self.differs.iter_mut().zip(values) {
            *differs |= first != value;
        }
    }

    fn write(&self, key: usize, words: &mut Words) {
        words.number(key);
        words.number(2 * self.first.len());
        let mut holes = Vec::new();
        for (index, ((name, value), differs)) in self.first.iter().zip(&self.differs).enumerate() {
            words.value(name);
            if *differs {
                words.word(b"");
                holes.extend(two_bytes(2 * index + 2));
            } else {
                words.value(value);
            }
        }
        words.word(&holes);
    }
}

/// The shapes of all appends, and the shape of each append in order.
struct Shapes<'a> {
    list: Vec<Shape<'a>>,
    order: Vec<usize>,
}

impl<'a> Shapes<'a> {
    fn of(settlements: impl Iterator<Item = &'a Settlement>) -> Shapes<'a> {
        let mut shapes = Shapes {
            list: Vec::new(),
            order: Vec::new(),
        };
        // Entries of one stream mostly have one shape, so it is looked for among that stream's.
        let mut known: HashMap<&str, Vec<usize>> = HashMap::new();
        for append in settlements.flat_map(|settlement| &settlement.appends) {
            let of_stream = known.entry(&append.stream).or_default();
            let fitting = of_stream
                .iter()
                .copied()
                .find(|at| shapes.list.get(*at).is_some_and(|shape| shape.fits(append)));
            let at = fitting.unwrap_or_else(|| {
                of_stream.push(shapes.list.len());
                shapes.list.push(Shape {
                    stream: &append.stream,
                    first: &append.fields,
                    differs: vec![false; append.fields.len()],
                });
                shapes.list.len() - 1
            });
            if let Some(shape) = shapes.list.get_mut(at) {
                shape.compare(append);
            }
            shapes.order.push(at);
        }
        shapes
    }
}

fn write<'a>(
    settlement: &'a Settlement,
    shapes: &Shapes<'_>,
    shape_of: &mut std::slice::Iter<'_, usize>,
    keys: &mut Numbers<'a>,
    words: &mut Words,
) {
    let Settlement {
        stream,
        consume,
        appends,
        puts,
        ..
    } = settlement;
    let mut head = Vec::with_capacity(8 + 2 * (appends.len() + puts.len()));
    head.extend(two_bytes(keys.of(stream)));
    head.extend(two_bytes(consume.as_ref().map_or(0, |key| keys.of(key))));
    head.extend(two_bytes(appends.len()));
    let shaped: Vec<usize> = shape_of.by_ref().take(appends.len()).copied().collect();
    for shape in &shaped {
        head.extend(two_bytes(shape + 1));
    }
    head.extend(two_bytes(puts.len()));
    for put in puts {
        head.extend(two_bytes(keys.of(&put.key)));
    }
    words.word(&head);
    words.id(settlement);
    for (append, shape) in appends.iter().zip(shaped) {
        let Some(shape) = shapes.list.get(shape) else {
            continue;
        };
        let differing = append
            .fields
            .iter()
            .zip(&shape.differs)
            .filter(|(_, differs)| **differs);
        for ((_, value), _) in differing {
            words.value(value);
        }
    }
    for put in puts {
        words.value(&put.value);
        words.out.number(lifetime(put));
        words.count += 1;
    }
}

/// A number as the script reads it. None is larger: a call has at most 256 settlements.
fn two_bytes(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes()
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

pub(crate) fn size(settlement: &Settlement) -> usize {
    let appends = settlement.appends.iter().map(|append| append.fields.size());
    let puts = settlement.puts.iter().map(|put| put.value.len());
    appends.chain(puts).fold(0, usize::saturating_add)
}

/// Milliseconds; the store refuses zero.
pub(crate) fn lifetime(put: &Put) -> u64 {
    u64::try_from(put.ttl.as_millis())
        .unwrap_or(u64::MAX)
        .clamp(1, i64::MAX.unsigned_abs() / 4)
}

fn number(length: usize) -> u64 {
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
            command: "EVALSHA",
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
