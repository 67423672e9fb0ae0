//! The least that moving entries between streams can cost: the yardstick for the relay.
//!
//! It reads a batch as a consumer group, appends each command to the target's stream and an
//! acknowledgement to its source's, and takes the batch off the pending list, pipelined, over the
//! same connections, with the same batches and entries of the same size as the relay's. It
//! decides nothing, remembers nothing, and may lose or double what it moves.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use crossway_core::entry::Entry;

use super::StoreUrl;
use super::connection::Connection;
use super::dial::Dialer;
use super::encode::Outgoing;
use super::entries::{Answer, AnswerBuilder, Limits};
use super::frame::Frame;
use crate::streams::{Key, ReadEntry, ReaderOptions, StoreError};

/// An acknowledgement's fields, of the length that the relay's have.
const ACKNOWLEDGEMENT: [(&[u8], &[u8]); 8] = [
    (b"t", b"r"),
    (b"st", b"ok"),
    (
        b"r",
        br#"{"relayed":true,"target":"target-0","target_site":"target-0","target_entity":"","target_stream":"target-0:gnode:unified:production","translated":false}"#,
    ),
    (b"ds", b"source-0"),
    (b"dn", b""),
    (b"ss", b"gnode"),
    (b"sn", b"one"),
    (b"ts", b"1700000000000"),
];

/// What the relay adds to an entry when it forwards it.
const ADDED: [(&[u8], &[u8]); 4] = [
    (b"ds", b"target-0"),
    (b"dn", b""),
    (b"_rr", b"source-0:gnode:unified:production"),
    (b"_oi", b"12345"),
];

/// Moves entries until the connection breaks: from each source to its target.
///
/// # Errors
/// [`StoreError`], when the store refuses something or can't be reached any more.
pub async fn run(
    url: &StoreUrl,
    routes: &HashMap<Key, Key>,
    options: &ReaderOptions,
) -> Result<(), StoreError> {
    let dialer = Arc::new(Dialer::new(url.clone()).await?);
    let mut read = Connection::open(&dialer, "bare-read").await?;
    let mut write = Connection::open(&dialer, "bare-write").await?;
    for source in routes.keys() {
        let group = options.group.as_bytes();
        let words = [
            b"XGROUP",
            b"CREATE" as &[u8],
            source.as_bytes(),
            group,
            b"0",
            b"MKSTREAM",
        ];
        // It may be there from an earlier run.
        let _ = write.ask(&words).await?;
    }
    let mut command = Outgoing::default();
    command
        .command(9 + 2 * routes.len())
        .word(b"XREADGROUP")
        .word(b"GROUP")
        .word(options.group.as_bytes())
        .word(options.consumer.as_bytes())
        .word(b"COUNT")
        .number(u64::try_from(options.count).unwrap_or(u64::MAX))
        .word(b"BLOCK")
        .number(u64::try_from(options.block.as_millis()).unwrap_or(u64::MAX))
        .word(b"STREAMS");
    for source in routes.keys() {
        command.word(source.as_bytes());
    }
    for _ in routes {
        command.word(b">");
    }
    let command = command.pieces();
    let limits = Limits {
        bytes: options.max_entry_bytes,
        fields: options.max_fields,
    };
    read.send(command.clone()).await?;
    loop {
        let mut builder = AnswerBuilder::new(limits);
        let Some(answer) = read.hear(&mut builder).await? else {
            continue;
        };
        let Answer::Streams(streams) = answer else {
            return Err(read.refused("XREADGROUP", b"ERR the read was refused"));
        };
        let mut out = Outgoing::default();
        let mut answers = 0;
        for (name, entries) in &streams {
            let Some((source, target)) = std::str::from_utf8(name)
                .ok()
                .and_then(|name| routes.get_key_value(name))
            else {
                continue;
            };
            answers += move_entries(&mut out, source, target, entries, &options.group);
        }
        if answers > 0 {
            write.send(out.pieces()).await?;
        }
        read.send(command.clone()).await?;
        for _ in 0..answers {
            if let Frame::Error(text) = write.answer().await? {
                return Err(write.refused("XADD", &text));
            }
        }
    }
}

/// Writes what one stream's entries give rise to; the number of commands.
fn move_entries(
    out: &mut Outgoing,
    source: &Key,
    target: &Key,
    entries: &[ReadEntry],
    group: &str,
) -> usize {
    let mut commands = 0;
    let mut ids = Vec::with_capacity(entries.len());
    for entry in entries {
        let ReadEntry::Whole(Entry { id, fields }) = entry else {
            continue;
        };
        ids.push(*id);
        if fields.get(b"_rt").is_none() {
            continue;
        }
        let kept = fields.iter().filter(|(name, _)| name != "_rt");
        out.command(3 + 2 * (kept.clone().count() + ADDED.len()))
            .word(b"XADD")
            .word(target.as_bytes())
            .word(b"*");
        for (name, value) in kept {
            out.value(name).value(value);
        }
        for (name, value) in ADDED {
            out.word(name).word(value);
        }
        let request = fields.get(b"i").cloned().unwrap_or_else(Bytes::new);
        out.command(5 + 2 * ACKNOWLEDGEMENT.len())
            .word(b"XADD")
            .word(source.as_bytes())
            .word(b"*")
            .word(b"ri")
            .value(&request);
        for (name, value) in ACKNOWLEDGEMENT {
            out.word(name).word(value);
        }
        commands += 2;
    }
    if !ids.is_empty() {
        out.command(3 + ids.len())
            .word(b"XACK")
            .word(source.as_bytes())
            .word(group.as_bytes());
        for id in ids {
            out.id(id);
        }
        commands += 1;
    }
    commands
}
