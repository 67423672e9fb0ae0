//! What `XINFO` tells of a stream and of its groups.

use bytes::Bytes;
use crossway_core::entry::EntryId;

use super::reply::Reply;
use super::show::{entry, id, map};
use crate::streams::embedded::engine::{Group, Stream};

/// Entries in one node of the tree that other servers keep a stream in; clients show such figures.
const NODE: usize = 100;

type Facts = Vec<(&'static str, Reply)>;

fn facts(stream: &Stream) -> Facts {
    let nodes = stream.len().div_ceil(NODE);
    vec![
        ("length", Reply::count(stream.len())),
        ("radix-tree-keys", Reply::count(nodes)),
        ("radix-tree-nodes", Reply::count(nodes.saturating_add(1))),
        ("last-generated-id", id(stream.last_id)),
        ("max-deleted-entry-id", id(EntryId::ZERO)),
        ("entries-added", Reply::number(stream.added)),
        (
            "recorded-first-entry-id",
            id(stream.first().map_or(EntryId::ZERO, |entry| entry.id)),
        ),
    ]
}

pub(super) fn short(stream: &Stream) -> Reply {
    let mut facts = facts(stream);
    facts.extend([
        ("groups", Reply::count(stream.groups.len())),
        ("first-entry", stream.first().map_or(Reply::Null, entry)),
        ("last-entry", stream.last().map_or(Reply::Null, entry)),
    ]);
    map(facts)
}

/// With groups, consumers and what is pending; at most `count` of entries and of each pending list.
pub(super) fn full(stream: &Stream, count: usize) -> Reply {
    let entries = stream.range(EntryId::ZERO, EntryId::MAX).take(count);
    let groups = stream.groups.iter();
    let groups = groups.map(|(name, group)| full_group(stream, name, group, count));
    let mut facts = facts(stream);
    facts.extend([
        ("entries", Reply::Array(entries.map(entry).collect())),
        ("groups", Reply::Array(groups.collect())),
    ]);
    map(facts)
}

fn full_group(stream: &Stream, name: &Bytes, group: &Group, count: usize) -> Reply {
    let pending = group.pending().iter().take(count).map(|(entry, pending)| {
        Reply::Array(vec![
            id(*entry),
            Reply::Bulk(pending.consumer.clone()),
            Reply::number(pending.at),
            Reply::number(pending.count),
        ])
    });
    let consumers = group.consumers().iter().map(|(name, ids)| {
        let pending = || group.pending_of(name, EntryId::ZERO);
        // When it last asked isn't kept; when it was last given something that it still has is.
        let seen = pending().map(|(_, pending)| pending.at).max();
        let rows = pending().take(count).map(|(entry, pending)| {
            Reply::Array(vec![
                id(entry),
                Reply::number(pending.at),
                Reply::number(pending.count),
            ])
        });
        map(vec![
            ("name", Reply::Bulk(name.clone())),
            ("seen-time", Reply::number(seen.unwrap_or(0))),
            ("pel-count", Reply::count(ids.len())),
            ("pending", Reply::Array(rows.collect())),
        ])
    });
    let [read, lag] = progress(stream, group);
    map(vec![
        ("name", Reply::Bulk(name.clone())),
        ("last-delivered-id", id(group.last_delivered)),
        read,
        lag,
        ("pel-count", Reply::count(group.pending().len())),
        ("pending", Reply::Array(pending.collect())),
        ("consumers", Reply::Array(consumers.collect())),
    ])
}

pub(super) fn groups(stream: &Stream) -> Reply {
    let group = |(name, group): (&Bytes, &Group)| {
        let [read, lag] = progress(stream, group);
        map(vec![
            ("name", Reply::Bulk(name.clone())),
            ("consumers", Reply::count(group.consumers().len())),
            ("pending", Reply::count(group.pending().len())),
            ("last-delivered-id", id(group.last_delivered)),
            read,
            lag,
        ])
    };
    Reply::Array(stream.groups.iter().map(group).collect())
}

/// How many entries a group has read, and how many it has yet to read.
fn progress(stream: &Stream, group: &Group) -> [(&'static str, Reply); 2] {
    let read = group
        .entries_read
        .or_else(|| stream.read_up_to(group.last_delivered));
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    // Below zero where a client gave a group more entries read than were ever added.
    let lag = if stream.added == 0 {
        Some(0)
    } else {
        read.map(|read| signed(stream.added).saturating_sub(signed(read)))
    };
    [
        (
            "entries-read",
            group.entries_read.map_or(Reply::Null, Reply::number),
        ),
        ("lag", lag.map_or(Reply::Null, Reply::Int)),
    ]
}
