//! Carrying commands out.

use bytes::Bytes;
use tokio::sync::oneshot;

use super::arguments::entry_id;
use super::command::{Command, From as Begin, Reading, Ttl};
use super::reply::{Protocol, Reply};
use super::{show, stream_info};
use crate::streams::embedded::State;
use crate::streams::embedded::blocked::{Fault, Served, Streamed, Wanted};
use crate::streams::embedded::engine::{Refusal, SetOptions, SetTtl, Value};

/// What became of a command.
pub(super) enum Outcome {
    Answer(Reply),
    /// It waits until something arrives, at most so many ms (0: for ever).
    Waits {
        ticket: u64,
        served: oneshot::Receiver<Served>,
        timeout: u64,
    },
}

pub(super) fn execute(
    state: &mut State,
    command: Command,
    protocol: Protocol,
    now: u64,
) -> Outcome {
    for stream in command.streams() {
        state.engine.note_use(&stream, now);
    }
    let answer = match command {
        Command::Read(reading) => {
            return read(state, reading, protocol, now)
                .unwrap_or_else(|fault| Outcome::Answer(fault.into()));
        }
        other => answer(state, other, now),
    };
    Outcome::Answer(answer.unwrap_or_else(Reply::from))
}

fn answer(state: &mut State, command: Command, now: u64) -> Result<Reply, Fault> {
    match command {
        Command::Add { .. }
        | Command::Len(_)
        | Command::Range { .. }
        | Command::Trim { .. }
        | Command::GroupCreate { .. }
        | Command::GroupDestroy { .. }
        | Command::Acknowledge { .. }
        | Command::PendingSummary { .. }
        | Command::Pending { .. }
        | Command::AutoClaim { .. }
        | Command::StreamInfo { .. }
        | Command::GroupsInfo(_) => on_streams(state, command, now),
        other => on_keys(state, other, now),
    }
}

fn on_keys(state: &mut State, command: Command, now: u64) -> Result<Reply, Fault> {
    Ok(match command {
        Command::Get(key) => Reply::or_null(state.engine.text(&key, now)?.cloned()),
        Command::Set {
            key,
            value,
            when,
            ttl,
            get,
        } => {
            let ttl = match ttl {
                Ttl::Forever => SetTtl::Forever,
                Ttl::Keep => SetTtl::Keep,
                Ttl::Until(at) => SetTtl::Until(at),
                Ttl::For(ms) => SetTtl::Until(
                    now.checked_add(ms)
                        .filter(|at| i64::try_from(*at).is_ok())
                        .ok_or(Refusal::of("ERR invalid expire time in 'set' command"))?,
                ),
            };
            let plan = state
                .engine
                .plan_set(key, value, SetOptions { when, ttl, get }, now)?;
            match state.carry_out(plan)? {
                (_, old) if get => Reply::or_null(old),
                (true, _) => Reply::OK,
                (false, _) => Reply::Null,
            }
        }
        Command::Delete(keys) => {
            let plan = state.engine.plan_delete(keys, now);
            Reply::Int(state.carry_out(plan)?)
        }
        Command::Exists(keys) => Reply::count(
            keys.iter()
                .filter(|key| state.engine.value(key, now).is_some())
                .count(),
        ),
        Command::Type(key) => {
            Reply::Simple(state.engine.value(&key, now).map_or("none", Value::kind))
        }
        Command::Expire { key, seconds, when } => {
            const INVALID: Refusal = Refusal::of("ERR invalid expire time in 'expire' command");
            let at = seconds
                .checked_mul(1000)
                .and_then(|ms| ms.checked_add(i64::try_from(now).ok()?))
                .ok_or(INVALID)?;
            let plan = state.engine.plan_expire(key, at, when, now);
            Reply::Int(i64::from(state.carry_out(plan)?))
        }
        Command::Ttl(key) => match state.engine.time_left(&key, now) {
            None => Reply::Int(-2),
            Some(None) => Reply::Int(-1),
            Some(Some(ms)) => Reply::number(ms.saturating_add(500) / 1000),
        },
        Command::Scan {
            cursor,
            count,
            pattern,
            kind,
        } => {
            let (next, keys) =
                state
                    .engine
                    .scan(cursor, count, pattern.as_deref(), kind.as_deref(), now);
            Reply::Array(vec![
                Reply::bulk(next.to_string()),
                Reply::Array(keys.into_iter().map(Reply::Bulk).collect()),
            ])
        }
        Command::HashSet { key, fields } => {
            let plan = state.engine.plan_hash_set(key, fields, now)?;
            Reply::Int(state.carry_out(plan)?)
        }
        Command::HashGet { key, field } => Reply::or_null(
            state
                .engine
                .hash(&key, now)?
                .and_then(|hash| hash.get(&field))
                .cloned(),
        ),
        Command::HashAll(key) => {
            let fields = state.engine.hash(&key, now)?.into_iter().flatten();
            Reply::Map(
                fields
                    .map(|(field, value)| (Reply::Bulk(field.clone()), Reply::Bulk(value.clone())))
                    .collect(),
            )
        }
        Command::HashDelete { key, fields } => {
            let plan = state.engine.plan_hash_remove(key, fields, now)?;
            Reply::Int(state.carry_out(plan)?)
        }
        // The caller has taken everything about streams for itself.
        _ => return Err(Refusal::SYNTAX.into()),
    })
}

fn on_streams(state: &mut State, command: Command, now: u64) -> Result<Reply, Fault> {
    Ok(match command {
        Command::Add {
            key,
            fields,
            options,
        } => {
            let plan = state.engine.plan_add(key, fields, options, now)?;
            state.carry_out(plan)?.map_or(Reply::Null, show::id)
        }
        Command::Len(key) => Reply::count(
            state
                .engine
                .stream(&key, now)?
                .map_or(0, |stream| stream.len()),
        ),
        Command::Range {
            key,
            from,
            to,
            count,
            reverse,
        } => {
            let stream = state.engine.stream(&key, now)?;
            match (stream, count) {
                (None, _) => Reply::Array(Vec::new()),
                (Some(_), Some(0)) => Reply::NullArray,
                (Some(stream), count) => {
                    let count = count.unwrap_or(usize::MAX);
                    let entries = stream.range(from, to);
                    Reply::Array(if reverse {
                        entries.rev().take(count).map(show::entry).collect()
                    } else {
                        entries.take(count).map(show::entry).collect()
                    })
                }
            }
        }
        Command::Trim { key, trim } => {
            let plan = state.engine.plan_trim(key, trim, now)?;
            Reply::Int(state.carry_out(plan)?)
        }
        Command::GroupCreate {
            key,
            group,
            from,
            entries_read,
            make,
        } => {
            let plan = state
                .engine
                .plan_group_create(key, group, from, entries_read, make, now)?;
            state.carry_out(plan)?;
            Reply::OK
        }
        Command::GroupDestroy { key, group } => {
            let plan = state.engine.plan_group_destroy(key, group, now)?;
            Reply::Int(i64::from(state.carry_out(plan)?))
        }
        Command::Acknowledge { key, group, ids } => acknowledge(state, key, group, &ids, now)?,
        Command::PendingSummary { key, group } => {
            show::pending_summary(state.engine.pending_summary(&key, &group, now)?)
        }
        Command::Pending { key, group, query } => {
            show::pending(state.engine.pending_list(&key, &group, &query, now)?)
        }
        Command::AutoClaim {
            key,
            group,
            consumer,
            min_idle,
            from,
            count,
            ids_only,
        } => {
            let plan = state.engine.plan_autoclaim(
                &key, &group, &consumer, min_idle, from, count, ids_only, now,
            )?;
            show::claimed(&state.carry_out(plan)?, ids_only)
        }
        Command::StreamInfo { key, full } => {
            let stream = state.engine.stream(&key, now)?;
            let stream = stream.ok_or(Refusal::NO_SUCH_KEY)?;
            match full {
                None => stream_info::short(stream),
                Some(count) => stream_info::full(stream, count),
            }
        }
        Command::GroupsInfo(key) => stream_info::groups(
            state
                .engine
                .stream(&key, now)?
                .ok_or(Refusal::NO_SUCH_KEY)?,
        ),
        // The caller has taken everything about other keys for itself.
        _ => return Err(Refusal::SYNTAX.into()),
    })
}

fn acknowledge(
    state: &mut State,
    key: Bytes,
    group: Bytes,
    ids: &[Bytes],
    now: u64,
) -> Result<Reply, Fault> {
    if !state
        .engine
        .stream(&key, now)?
        .is_some_and(|stream| stream.groups.contains_key(&group))
    {
        return Ok(Reply::Int(0));
    }
    let ids = ids
        .iter()
        .map(|id| entry_id(id, 0))
        .collect::<Result<Vec<_>, _>>()?;
    let plan = state.engine.plan_acknowledge(key, group, &ids, now)?;
    Ok(Reply::Int(state.carry_out(plan)?))
}

fn read(
    state: &mut State,
    reading: Reading,
    protocol: Protocol,
    now: u64,
) -> Result<Outcome, Fault> {
    let Reading {
        member,
        streams,
        count,
        block,
        keep_pending,
    } = reading;
    let history = streams
        .iter()
        .any(|(_, from)| matches!(from, Begin::After(_)));
    let (wanted, found) = match member {
        None => {
            let mut after = Vec::with_capacity(streams.len());
            for (key, from) in streams {
                let last = state.engine.stream(&key, now)?.map(|stream| stream.last_id);
                after.push(match from {
                    Begin::After(id) => (key, id),
                    Begin::End | Begin::New => (key, last.unwrap_or_default()),
                });
            }
            let mut found: Streamed = Vec::new();
            for (key, id) in &after {
                let entries = state.read_after(key, *id, count, now)?;
                if !entries.is_empty() {
                    found.push((key.clone(), entries));
                }
            }
            (Wanted::After(after), found)
        }
        Some((group, consumer)) => {
            // All groups have to be there before anything is delivered from one of them.
            for (key, _) in &streams {
                state
                    .engine
                    .group(key, &group, " in XREADGROUP with GROUP option", now)?;
            }
            let keys = streams.iter().map(|(key, _)| key.clone()).collect();
            let wanted = Wanted::New {
                group: group.clone(),
                consumer: consumer.clone(),
                streams: keys,
                keep_pending,
            };
            let mut found: Streamed = Vec::new();
            for (key, from) in &streams {
                let read = match from {
                    Begin::After(after) => {
                        let plan = state
                            .engine
                            .plan_read_history(key, &group, &consumer, *after, count, now);
                        plan.map_err(Fault::from)
                            .and_then(|plan| Ok(state.carry_out(plan)?))
                    }
                    Begin::End | Begin::New => state.read_one(&wanted, key, count, now),
                };
                match read {
                    // A history is an answer even when there is nothing in it.
                    Ok(entries) if entries.is_empty() && !matches!(from, Begin::After(_)) => {}
                    Ok(entries) => found.push((key.clone(), entries)),
                    // What was delivered already is shown; the rest fails by itself the next time.
                    Err(_) if !found.is_empty() => break,
                    Err(fault) => return Err(fault),
                }
            }
            (wanted, found)
        }
    };
    let as_group = matches!(wanted, Wanted::New { .. });
    Ok(match block {
        _ if !found.is_empty() => {
            Outcome::Answer(show::streamed(found, protocol == Protocol::Three))
        }
        Some(timeout) if !(as_group && history) => {
            let (ticket, served) = state.blocked.wait(wanted, count);
            Outcome::Waits {
                ticket,
                served,
                timeout,
            }
        }
        _ => Outcome::Answer(Reply::NullArray),
    })
}
