//! Settling what was read, where keys lie in different slots.
//!
//! The order can lose nothing: that the fence holds and the entries are still pending is asked
//! first; then keys are claimed, string keys written and entries added in other slots; last, in
//! one step on the source's slot, the entry is taken off the pending list and what belongs there
//! is added. Whoever is stopped in between leaves the entry pending, and it is settled again.
//!
//! In each round a stream is written by one call, so that a call which is sent on to another node
//! is overtaken by nothing. What of one source goes to one stream is in the same call, and fails
//! together; where an entry is stopped earlier for a passing reason, nothing later of its stream is begun.

use std::collections::HashMap;

use super::links::{Call, Links};
use super::slot::{beside, slot};
use super::work::{Work, held, is_held, passing};
use crate::streams::valkey::encode::Outgoing;
use crate::streams::valkey::frame::{Frame, FrameBuilder};
use crate::streams::valkey::settle::{
    MAX_BYTES, MAX_FIELDS, MAX_SETTLEMENTS, Outcome, Settler, UNFENCED, enter, lifetime, size,
};
use crate::streams::{Append, Fence, Key, Put, Settled, Settlement, StoreError};

const APPEND: &str = include_str!("append.lua");
const CLAIM: &str = include_str!("claim.lua");

/// How long a claimed key is kept at least: time for another daemon to carry on.
const CLAIM_MS: &str = "600000";

/// Who settles.
pub(crate) struct Settling<'a> {
    pub(crate) links: &'a mut Links,
    pub(crate) group: &'a str,
    pub(crate) consumer: &'a str,
}

impl Settling<'_> {
    /// Settles in order, as far as that goes.
    pub(crate) async fn all(
        &mut self,
        fence: &Fence,
        settlements: &[Settlement],
    ) -> Result<Vec<Settled>, StoreError> {
        let mut settled = Vec::with_capacity(settlements.len());
        let mut rest = settlements;
        while !rest.is_empty() {
            let (some, others) = rest.split_at(chunk(rest));
            if settled.iter().any(is_held) {
                settled.extend(held(some));
            } else {
                settled.extend(self.some(fence, some).await?);
            }
            rest = others;
        }
        Ok(settled)
    }

    async fn some(
        &mut self,
        fence: &Fence,
        settlements: &[Settlement],
    ) -> Result<Vec<Settled>, StoreError> {
        let mut work = Work::new(settlements);
        self.ask(fence, &mut work).await?;
        self.claim(&mut work).await;
        self.put(&mut work).await;
        self.append(&mut work).await;
        self.take_off(&mut work).await;
        self.clean(&work).await;
        Ok(work
            .outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or(Settled::Done))
            .collect())
    }

    /// Asks whether the fence holds, and whether the entries are still pending.
    async fn ask(&mut self, fence: &Fence, work: &mut Work<'_>) -> Result<(), StoreError> {
        let mut calls = vec![line(
            &fence.key,
            &[b"HGET", fence.key.as_bytes(), fence.field.as_bytes()],
        )];
        let mut places = Vec::new();
        for (at, settlement) in work.open() {
            let too_wide = |append: &Append| append.fields.len() > MAX_FIELDS;
            if settlement.appends.iter().any(too_wide) {
                let reason = format!("ERR an entry has more than {MAX_FIELDS} fields");
                work.end(at, Settled::Failed(reason));
            } else if !settlement.is_bare() {
                let id = settlement.entry.to_string();
                let (key, id) = (settlement.stream.as_bytes(), id.as_bytes());
                let words: [&[u8]; 6] = [b"XPENDING", key, self.group.as_bytes(), id, id, b"1"];
                calls.push(line(&settlement.stream, &words));
                places.push(at);
            }
        }
        let mut answers = self
            .links
            .round(&calls, false, FrameBuilder::default)
            .await
            .into_iter();
        match answers.next() {
            Some(Ok(Frame::Text(value))) if value == fence.value.as_bytes() => {}
            Some(Ok(Frame::Error(text))) => {
                return Err(StoreError::Refused {
                    command: "HGET",
                    key: fence.key.to_string(),
                    reason: String::from_utf8_lossy(&text).into_owned(),
                });
            }
            Some(Err(error)) => return Err(error),
            Some(Ok(_)) | None => return Err(StoreError::Fenced),
        }
        for (at, answer) in places.into_iter().zip(answers) {
            match answer {
                Ok(Frame::List(pending)) if !pending.is_empty() => {}
                Ok(Frame::Error(text)) if !text.starts_with(b"NOGROUP") => work.fail(at, &text),
                Ok(_) => work.end(at, Settled::NotPending),
                Err(error) => work.fail_for(at, &error),
            }
        }
        work.hold();
        Ok(())
    }

    async fn claim(&mut self, work: &mut Work<'_>) {
        let (mut calls, mut places) = (Vec::new(), Vec::new());
        for (at, settlement) in work.open() {
            if let Some(key) = &settlement.consume {
                let claim = beside(key, "claim");
                let holder = format!("{} {}", settlement.stream, settlement.entry);
                let words: [&[u8]; 7] = [
                    b"EVAL",
                    CLAIM.as_bytes(),
                    b"2",
                    key.as_bytes(),
                    claim.as_bytes(),
                    holder.as_bytes(),
                    CLAIM_MS.as_bytes(),
                ];
                calls.push(line(key, &words));
                places.push(at);
            }
        }
        for (at, answer) in places.into_iter().zip(self.round(&calls, false).await) {
            match answer {
                Ok(Frame::Integer(1)) => {}
                Ok(Frame::Integer(_)) => work.end(at, Settled::Unmet),
                Ok(Frame::Error(text)) => work.fail(at, &text),
                Ok(_) => work.fail(at, b"ERR its answer isn't one of the script"),
                Err(error) => work.fail_for(at, &error),
            }
        }
        work.hold();
    }

    async fn put(&mut self, work: &mut Work<'_>) {
        let (mut calls, mut places) = (Vec::new(), Vec::new());
        for (at, settlement) in work.open() {
            let home = slot(&settlement.stream);
            for put in abroad(&settlement.puts, home, |put: &Put| &put.key) {
                let mut out = Outgoing::default();
                out.command(5)
                    .word(b"SET")
                    .word(put.key.as_bytes())
                    .value(&put.value)
                    .word(b"PX")
                    .number(lifetime(put));
                calls.push(call(&put.key, out));
                places.push(at);
            }
        }
        for (at, answer) in places.into_iter().zip(self.round(&calls, true).await) {
            match answer {
                Ok(Frame::Error(text)) => work.fail(at, &text),
                Ok(_) => {}
                Err(error) => work.fail_for(at, &error),
            }
        }
        work.hold();
    }

    async fn append(&mut self, work: &mut Work<'_>) {
        let mut order: Vec<&Key> = Vec::new();
        let mut by_stream: HashMap<&Key, Vec<(usize, &Append)>> = HashMap::new();
        for (at, settlement) in work.open() {
            let home = slot(&settlement.stream);
            for append in abroad(&settlement.appends, home, |append| &append.stream) {
                let of_stream = by_stream.entry(&append.stream).or_insert_with(|| {
                    order.push(&append.stream);
                    Vec::new()
                });
                of_stream.push((at, append));
            }
        }
        let calls: Vec<Call> = order
            .iter()
            .map(|key| additions(key, by_stream.get(*key).map_or(&[], Vec::as_slice)))
            .collect();
        let answers = self.round(&calls, true).await;
        for (key, answer) in order.into_iter().zip(answers) {
            let places = by_stream.remove(key).unwrap_or_default();
            let refused = match &answer {
                Ok(Frame::List(answers)) => {
                    for ((at, _), id) in places.iter().zip(answers) {
                        if let Some(id) = id.text().filter(|id| !id.starts_with(b"!")) {
                            work.added(*at, key, id);
                        }
                    }
                    let last = answers.last().and_then(Frame::text);
                    let refusal = last.and_then(|text| text.strip_prefix(b"!"));
                    refusal.map(|refusal| (answers.len() - 1, Ok(refusal)))
                }
                Ok(Frame::Error(text)) => Some((0, Ok(&text[..]))),
                Ok(_) => Some((0, Ok(&b"ERR its answer isn't one of the script"[..]))),
                Err(error) => Some((0, Err(error))),
            };
            if let Some((from, reason)) = refused {
                for (at, _) in places.iter().skip(from) {
                    match reason {
                        Ok(text) => work.fail(*at, text),
                        Err(error) => work.fail_for(*at, error),
                    }
                }
            }
        }
    }

    /// The last step: everything on the source's slot, at once.
    async fn take_off(&mut self, work: &mut Work<'_>) {
        let mut order: Vec<Key> = Vec::new();
        let mut by_source: HashMap<Key, (Vec<usize>, Vec<Settlement>)> = HashMap::new();
        for (at, settlement) in work.open() {
            let (places, parts) = by_source
                .entry(settlement.stream.clone())
                .or_insert_with(|| {
                    order.push(settlement.stream.clone());
                    Default::default()
                });
            places.push(at);
            parts.push(at_home(settlement));
        }
        let mut plans = Vec::new();
        for source in order {
            let Some((places, parts)) = by_source.remove(&source) else {
                continue;
            };
            let fence = Fence {
                key: source.clone(),
                field: String::new(),
                value: String::new(),
            };
            let settler = Settler {
                fence: &fence,
                group: self.group,
                consumer: self.consumer,
                command: "EVAL",
                digest: UNFENCED.as_bytes(),
            };
            plans.push((source, places, settler.plan(&parts)));
        }
        let calls: Vec<Call> = plans
            .iter()
            .flat_map(|(source, _, plan)| {
                plan.calls.iter().map(|call| Call {
                    slot: slot(source),
                    pieces: call.pieces.clone(),
                })
            })
            .collect();
        let mut answers = self.round(&calls, false).await.into_iter();
        for (_, places, mut plan) in plans {
            let mut refused = None;
            for (call, answer) in plan.calls.iter().zip(answers.by_ref()) {
                match answer {
                    Ok(answer) => match enter(call, &answer, &mut plan.settled) {
                        Outcome::Ran => {}
                        Outcome::Refused(reason) => refused = Some(reason),
                        _ => refused = Some("ERR its answer isn't one of the script".to_owned()),
                    },
                    Err(error) => refused = Some(passing(&error)),
                }
            }
            for (at, settled) in places.into_iter().zip(plan.settled) {
                work.end(
                    at,
                    match &refused {
                        Some(reason) => Settled::Failed(reason.clone()),
                        None => settled,
                    },
                );
            }
        }
    }

    /// Removes what was consumed, and takes back what was added for an entry that can't be settled.
    /// What isn't removed here expires, or is a copy that its delivery id gives away.
    async fn clean(&mut self, work: &Work<'_>) {
        let mut calls = Vec::new();
        for ((settlement, outcome), ids) in
            work.settlements.iter().zip(&work.outcomes).zip(&work.ids)
        {
            let claim = settlement
                .consume
                .as_ref()
                .map(|key| (key, beside(key, "claim")));
            match outcome {
                Some(Settled::Done) | None => {
                    if let Some((key, claim)) = claim {
                        calls.push(line(key, &[b"DEL", key.as_bytes(), claim.as_bytes()]));
                    }
                }
                Some(outcome @ Settled::Failed(_)) if !is_held(outcome) => {
                    if let Some((key, claim)) = claim {
                        calls.push(line(key, &[b"DEL", claim.as_bytes()]));
                    }
                    for (stream, id) in ids {
                        let words: [&[u8]; 3] = [b"XDEL", stream.as_bytes(), id.as_bytes()];
                        calls.push(line(stream, &words));
                    }
                    let home = slot(&settlement.stream);
                    for put in abroad(&settlement.puts, home, |put| &put.key) {
                        calls.push(line(&put.key, &[b"DEL", put.key.as_bytes()]));
                    }
                }
                Some(_) => {}
            }
        }
        for answer in self.round(&calls, false).await {
            if let Err(error) = answer {
                tracing::debug!(%error, "cleaning up after a settlement");
            }
        }
    }

    async fn round(&mut self, calls: &[Call], confirm: bool) -> Vec<Result<Frame, StoreError>> {
        if calls.is_empty() {
            return Vec::new();
        }
        self.links
            .round(calls, confirm, FrameBuilder::default)
            .await
    }
}

/// How many settlements are carried out together: as many as one call of the script takes.
fn chunk(settlements: &[Settlement]) -> usize {
    let mut bytes = 0_usize;
    let fitting = settlements
        .iter()
        .take(MAX_SETTLEMENTS)
        .take_while(|settlement| {
            bytes = bytes.saturating_add(size(settlement));
            bytes <= MAX_BYTES
        });
    fitting.count().max(1)
}

fn abroad<T>(parts: &[T], home: u16, key: impl Fn(&T) -> &Key) -> impl Iterator<Item = &T> {
    parts.iter().filter(move |part| slot(key(part)) != home)
}

/// What of a settlement belongs to its source's slot.
fn at_home(settlement: &Settlement) -> Settlement {
    let home = slot(&settlement.stream);
    let appends = settlement.appends.iter();
    let puts = settlement.puts.iter();
    Settlement {
        stream: settlement.stream.clone(),
        entry: settlement.entry,
        consume: None,
        appends: appends
            .filter(|append| slot(&append.stream) == home)
            .cloned()
            .collect(),
        puts: puts.filter(|put| slot(&put.key) == home).cloned().collect(),
    }
}

fn additions(stream: &Key, appends: &[(usize, &Append)]) -> Call {
    let words: usize = appends
        .iter()
        .map(|(_, append)| 1 + 2 * append.fields.len())
        .sum();
    let mut out = Outgoing::default();
    out.command(4 + words)
        .word(b"EVAL")
        .word(APPEND.as_bytes())
        .number(1)
        .word(stream.as_bytes());
    for (_, append) in appends {
        out.number(u64::try_from(2 * append.fields.len()).unwrap_or(u64::MAX));
        for (name, value) in &append.fields {
            out.value(name).value(value);
        }
    }
    call(stream, out)
}

fn line(key: &str, words: &[&[u8]]) -> Call {
    let mut out = Outgoing::default();
    out.line(words);
    call(key, out)
}

fn call(key: &str, out: Outgoing) -> Call {
    Call {
        slot: slot(key),
        pieces: out.pieces(),
    }
}
