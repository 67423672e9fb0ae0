//! Which commands there are.

use std::fmt::Write as _;

use bytes::Bytes;

use super::arguments::Arguments;
use super::command::Command;
use super::parse;
use super::parse_groups;
use super::reply::Reply;
use crate::streams::embedded::engine::Refusal;

/// What a command is about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Meaning {
    /// The data; its arguments are understood first.
    Data(fn(Arguments) -> Result<Command, Refusal>),
    Session(Session),
}

/// Commands about the connection, or about the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Session {
    Auth,
    Hello,
    Quit,
    Ping,
    Select,
    Info,
    ClientId,
    ClientSetName,
    ClientSetInfo,
    Commands,
    CommandCount,
    CommandDocs,
}

/// A command: its name (`parent|name` for one of a family), how many words it has with its name
/// (negative: at least so many), whether it writes, and which of its words are keys (first, last, step).
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    pub(super) arity: i64,
    pub(super) writes: bool,
    pub(super) keys: (i64, i64, i64),
    pub(super) meaning: Meaning,
}

const fn read(
    name: &'static str,
    arity: i64,
    keys: (i64, i64, i64),
    parse: fn(Arguments) -> Result<Command, Refusal>,
) -> Spec {
    Spec {
        name,
        arity,
        writes: false,
        keys,
        meaning: Meaning::Data(parse),
    }
}

const fn write(
    name: &'static str,
    arity: i64,
    keys: (i64, i64, i64),
    parse: fn(Arguments) -> Result<Command, Refusal>,
) -> Spec {
    Spec {
        name,
        arity,
        writes: true,
        keys,
        meaning: Meaning::Data(parse),
    }
}

const fn session(name: &'static str, arity: i64, what: Session) -> Spec {
    Spec {
        name,
        arity,
        writes: false,
        keys: NONE,
        meaning: Meaning::Session(what),
    }
}

const NONE: (i64, i64, i64) = (0, 0, 0);
const FIRST: (i64, i64, i64) = (1, 1, 1);
const SECOND: (i64, i64, i64) = (2, 2, 1);
const ALL: (i64, i64, i64) = (1, -1, 1);

pub(super) const COMMANDS: &[Spec] = &[
    session("auth", -2, Session::Auth),
    session("client|id", 2, Session::ClientId),
    session("client|setinfo", 4, Session::ClientSetInfo),
    session("client|setname", 3, Session::ClientSetName),
    session("command", -1, Session::Commands),
    session("command|count", 2, Session::CommandCount),
    session("command|docs", -2, Session::CommandDocs),
    write("del", -2, ALL, parse::delete),
    read("exists", -2, ALL, parse::exists),
    write("expire", -3, FIRST, parse::expire),
    read("get", 2, FIRST, parse::get),
    write("hdel", -3, FIRST, parse::hash_delete),
    session("hello", -1, Session::Hello),
    read("hget", 3, FIRST, parse::hash_get),
    read("hgetall", 2, FIRST, parse::hash_all),
    write("hset", -4, FIRST, parse::hash_set),
    session("info", -1, Session::Info),
    session("ping", -1, Session::Ping),
    session("quit", -1, Session::Quit),
    read("scan", -2, NONE, parse::scan),
    session("select", 2, Session::Select),
    write("set", -3, FIRST, parse::set),
    read("ttl", 2, FIRST, parse::ttl),
    read("type", 2, FIRST, parse::kind),
    write("xack", -4, FIRST, parse_groups::acknowledge),
    write("xadd", -5, FIRST, parse::add),
    write("xautoclaim", -6, FIRST, parse_groups::auto_claim),
    write("xgroup|create", -5, SECOND, parse_groups::group_create),
    write("xgroup|destroy", 4, SECOND, parse_groups::group_destroy),
    read("xinfo|groups", 3, SECOND, parse_groups::groups_info),
    read("xinfo|stream", -3, SECOND, parse_groups::stream_info),
    read("xlen", 2, FIRST, parse::len),
    read("xpending", -3, FIRST, parse_groups::pending),
    read("xrange", -4, FIRST, parse::range),
    read("xread", -4, NONE, parse_groups::read),
    write("xreadgroup", -7, NONE, parse_groups::read_group),
    read("xrevrange", -4, FIRST, parse::reverse_range),
    write("xtrim", -4, FIRST, parse::trim),
];

/// Commands that are families, with how many words they have at least.
const FAMILIES: &[&str] = &["client", "xgroup", "xinfo"];

/// Bytes of a client's own words that an error repeats.
const QUOTED: usize = 128;

/// Finds a command by its words, and checks how many there are.
pub(super) fn find(words: &[Bytes]) -> Result<&'static Spec, Reply> {
    let name = words
        .first()
        .map(|name| String::from_utf8_lossy(name).to_ascii_lowercase())
        .unwrap_or_default();
    let family = FAMILIES.contains(&name.as_str());
    let spec = match words.get(1) {
        Some(second) if family || name == "command" => {
            let full = format!(
                "{name}|{}",
                String::from_utf8_lossy(second).to_ascii_lowercase()
            );
            by_name(&full).ok_or_else(|| {
                let second = String::from_utf8_lossy(second);
                let text = format!(
                    "ERR unknown subcommand '{}'. Try {} HELP.",
                    cut(&second),
                    name.to_ascii_uppercase()
                );
                Reply::Error(text.into())
            })?
        }
        _ if family => return Err(wrong_number(&name)),
        _ => by_name(&name)
            .filter(|_| !name.contains('|'))
            .ok_or_else(|| unknown(words))?,
    };
    let given = i64::try_from(words.len()).unwrap_or(i64::MAX);
    let right = if spec.arity < 0 {
        given >= -spec.arity
    } else {
        given == spec.arity
    };
    if right {
        Ok(spec)
    } else {
        Err(wrong_number(spec.name))
    }
}

fn by_name(name: &str) -> Option<&'static Spec> {
    COMMANDS
        .binary_search_by(|spec| spec.name.cmp(name))
        .ok()
        .and_then(|at| COMMANDS.get(at))
}

pub(super) fn wrong_number(name: &str) -> Reply {
    Reply::Error(format!("ERR wrong number of arguments for '{name}' command").into())
}

fn cut(text: &str) -> &str {
    let end = (0..=QUOTED.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

fn unknown(words: &[Bytes]) -> Reply {
    let name = words
        .first()
        .map(|name| String::from_utf8_lossy(name))
        .unwrap_or_default();
    let mut quoted = String::new();
    for word in words.iter().skip(1) {
        if quoted.len() >= QUOTED {
            break;
        }
        let word = String::from_utf8_lossy(word);
        let room = QUOTED.saturating_sub(quoted.len());
        let end = (0..=room.min(word.len()))
            .rev()
            .find(|end| word.is_char_boundary(*end))
            .unwrap_or(0);
        // Writing to a string doesn't fail.
        let _ = write!(quoted, "'{}' ", word.get(..end).unwrap_or_default());
    }
    Reply::Error(
        format!(
            "ERR unknown command '{}', with args beginning with: {quoted}",
            cut(&name)
        )
        .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_that_it_is_searched_in() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
    }
}
