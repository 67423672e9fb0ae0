//! How data is shown to a client.

use bytes::Bytes;
use crossway_core::entry::{Entry, EntryId, Fields};

use super::reply::Reply;
use super::table::{COMMANDS, Meaning, Session, Spec};
use crate::streams::embedded::blocked::Streamed;
use crate::streams::embedded::engine::{Claimed, PendingSummary, ReadOne};

pub(super) fn id(id: EntryId) -> Reply {
    Reply::bulk(id.to_string())
}

fn fields(fields: &Fields) -> Reply {
    Reply::Array(
        fields
            .iter()
            .flat_map(|(name, value)| [Reply::Bulk(name.clone()), Reply::Bulk(value.clone())])
            .collect(),
    )
}

pub(super) fn entry(entry: &Entry) -> Reply {
    Reply::Array(vec![id(entry.id), fields(&entry.fields)])
}

fn read_one((entry, held): &ReadOne) -> Reply {
    Reply::Array(vec![
        id(*entry),
        held.as_ref().map_or(Reply::NullArray, fields),
    ])
}

/// What a read gave, by stream.
pub(super) fn streamed(streams: Streamed, as_map: bool) -> Reply {
    let streams = streams.into_iter().map(|(key, entries)| {
        (
            Reply::Bulk(key),
            Reply::Array(entries.iter().map(read_one).collect()),
        )
    });
    if as_map {
        Reply::Map(streams.collect())
    } else {
        Reply::Array(
            streams
                .map(|(key, entries)| Reply::Array(vec![key, entries]))
                .collect(),
        )
    }
}

pub(super) fn pending_summary(summary: PendingSummary) -> Reply {
    let (first, last) = summary
        .range
        .map_or((Reply::Null, Reply::Null), |(first, last)| {
            (id(first), id(last))
        });
    let consumers: Vec<Reply> = summary
        .consumers
        .into_iter()
        .map(|(name, count)| Reply::Array(vec![Reply::Bulk(name), Reply::bulk(count.to_string())]))
        .collect();
    let consumers = if summary.total == 0 {
        Reply::NullArray
    } else {
        Reply::Array(consumers)
    };
    Reply::Array(vec![Reply::count(summary.total), first, last, consumers])
}

pub(super) fn pending(rows: Vec<(EntryId, Bytes, u64, u64)>) -> Reply {
    let row = |(entry, consumer, idle, count)| {
        Reply::Array(vec![
            id(entry),
            Reply::Bulk(consumer),
            Reply::number(idle),
            Reply::number(count),
        ])
    };
    Reply::Array(rows.into_iter().map(row).collect())
}

pub(super) fn claimed(claimed: &Claimed, ids_only: bool) -> Reply {
    let entries = claimed
        .entries
        .iter()
        .map(|held| if ids_only { id(held.id) } else { entry(held) });
    Reply::Array(vec![
        id(claimed.next),
        Reply::Array(entries.collect()),
        Reply::Array(claimed.gone.iter().copied().map(id).collect()),
    ])
}

pub(super) fn map(items: Vec<(&'static str, Reply)>) -> Reply {
    Reply::Map(
        items
            .into_iter()
            .map(|(name, value)| (Reply::word(name), value))
            .collect(),
    )
}

/// A command as clients look it up: name, arity, flags, keys, and five lists that stay empty.
fn command(spec: &Spec) -> Reply {
    let flag = match spec.meaning {
        Meaning::Data(_) if spec.writes => "write",
        Meaning::Data(_) => "readonly",
        Meaning::Session(Session::Auth | Session::Hello | Session::Quit) => "no_auth",
        Meaning::Session(_) => "fast",
    };
    let mut flags = vec![Reply::Simple(flag)];
    if matches!(spec.name, "xread" | "xreadgroup") {
        flags.extend([Reply::Simple("blocking"), Reply::Simple("movablekeys")]);
    }
    let (first, last, step) = spec.keys;
    let mut about = vec![
        Reply::bulk(spec.name),
        Reply::Int(spec.arity),
        Reply::Array(flags),
        Reply::Int(first),
        Reply::Int(last),
        Reply::Int(step),
    ];
    about.extend((0..4).map(|_| Reply::Array(Vec::new())));
    Reply::Array(about)
}

/// All commands; those of a family stand under the family's name.
pub(super) fn commands() -> Reply {
    let mut all: Vec<Reply> = Vec::new();
    let mut family: Option<(&str, Vec<Reply>)> = None;
    let close = |family: &mut Option<(&str, Vec<Reply>)>, all: &mut Vec<Reply>| {
        if let Some((name, members)) = family.take() {
            let mut about = vec![Reply::bulk(name), Reply::Int(-2), Reply::Array(Vec::new())];
            about.extend((0..3).map(|_| Reply::Int(0)));
            about.extend((0..3).map(|_| Reply::Array(Vec::new())));
            about.push(Reply::Array(members));
            all.push(Reply::Array(about));
        }
    };
    for spec in COMMANDS {
        let parent = spec
            .name
            .split_once('|')
            .map(|(parent, _)| parent)
            .filter(|parent| *parent != "command");
        match (parent, &mut family) {
            (Some(parent), Some((name, members))) if *name == parent => members.push(command(spec)),
            (Some(parent), _) => {
                close(&mut family, &mut all);
                family = Some((parent, vec![command(spec)]));
            }
            (None, _) => {
                close(&mut family, &mut all);
                if !spec.name.contains('|') {
                    all.push(command(spec));
                }
            }
        }
    }
    close(&mut family, &mut all);
    Reply::Array(all)
}

/// How many names [`commands`] lists.
pub(super) fn command_count() -> Reply {
    let mut names: Vec<&str> = COMMANDS
        .iter()
        .filter_map(|spec| spec.name.split('|').next())
        .collect();
    names.dedup();
    Reply::count(names.len())
}

/// What is known about these commands, or about all.
pub(super) fn command_docs(names: &[Bytes]) -> Reply {
    let asked = |spec: &&Spec| {
        !spec.name.contains('|')
            && (names.is_empty()
                || names
                    .iter()
                    .any(|name| name.eq_ignore_ascii_case(spec.name.as_bytes())))
    };
    let docs = COMMANDS.iter().filter(asked).map(|spec| {
        let group = match spec.meaning {
            Meaning::Session(_) => "connection",
            Meaning::Data(_) if spec.name.starts_with('x') => "stream",
            Meaning::Data(_) if spec.name.starts_with('h') => "hash",
            Meaning::Data(_) => "generic",
        };
        (
            Reply::bulk(spec.name),
            map(vec![("group", Reply::word(group))]),
        )
    });
    Reply::Map(docs.collect())
}
