//! From arguments to commands.

use bytes::Bytes;
use crossway_core::entry::{EntryId, Fields};

use super::arguments::{Arguments, entry_id, integer, interval_end, interval_start};
use super::command::{Command, From, Reading, Ttl};
use crate::streams::embedded::engine::{
    AddOptions, ExpireWhen, Keep, NewId, PendingQuery, Refusal, SetWhen, Trim,
};

/// How many entries an approximate trim takes away at most, where the client doesn't say.
const APPROXIMATE_LIMIT: usize = 10_000;

type Parsed = Result<Command, Refusal>;

pub(super) fn get(mut arguments: Arguments) -> Parsed {
    Ok(Command::Get(arguments.need()?))
}

pub(super) fn set(mut arguments: Arguments) -> Parsed {
    let (key, value) = (arguments.need()?, arguments.need()?);
    let (mut when, mut ttl, mut get) = (SetWhen::Always, Ttl::Forever, false);
    while arguments.left() > 0 {
        if arguments.take("NX") && when != SetWhen::Present {
            when = SetWhen::Missing;
        } else if arguments.take("XX") && when != SetWhen::Missing {
            when = SetWhen::Present;
        } else if arguments.take("GET") {
            get = true;
        } else if arguments.take("KEEPTTL") && matches!(ttl, Ttl::Forever | Ttl::Keep) {
            ttl = Ttl::Keep;
        } else if ttl != Ttl::Forever {
            return Err(Refusal::SYNTAX);
        } else if arguments.take("EX") {
            ttl = Ttl::For(lifetime(&mut arguments, 1000)?);
        } else if arguments.take("PX") {
            ttl = Ttl::For(lifetime(&mut arguments, 1)?);
        } else if arguments.take("EXAT") {
            ttl = Ttl::Until(lifetime(&mut arguments, 1000)?);
        } else if arguments.take("PXAT") {
            ttl = Ttl::Until(lifetime(&mut arguments, 1)?);
        } else {
            return Err(Refusal::SYNTAX);
        }
    }
    Ok(Command::Set {
        key,
        value,
        when,
        ttl,
        get,
    })
}

fn lifetime(arguments: &mut Arguments, unit: i64) -> Result<u64, Refusal> {
    const INVALID: Refusal = Refusal::of("ERR invalid expire time in 'set' command");
    let number = arguments.integer()?.checked_mul(unit).ok_or(INVALID)?;
    u64::try_from(number)
        .ok()
        .filter(|number| *number > 0)
        .ok_or(INVALID)
}

pub(super) fn delete(arguments: Arguments) -> Parsed {
    Ok(Command::Delete(arguments.rest()))
}

pub(super) fn exists(arguments: Arguments) -> Parsed {
    Ok(Command::Exists(arguments.rest()))
}

pub(super) fn kind(mut arguments: Arguments) -> Parsed {
    Ok(Command::Type(arguments.need()?))
}

pub(super) fn ttl(mut arguments: Arguments) -> Parsed {
    Ok(Command::Ttl(arguments.need()?))
}

pub(super) fn expire(mut arguments: Arguments) -> Parsed {
    let (key, seconds) = (arguments.need()?, arguments.need()?);
    let mut when = ExpireWhen::default();
    while let Some(next) = arguments.peek().cloned() {
        if arguments.take("NX") {
            when.missing = true;
        } else if arguments.take("XX") {
            when.present = true;
        } else if arguments.take("GT") {
            when.greater = true;
        } else if arguments.take("LT") {
            when.less = true;
        } else {
            return Err(Refusal(
                format!("ERR Unsupported option {}", String::from_utf8_lossy(&next)).into(),
            ));
        }
    }
    if when.missing && (when.present || when.greater || when.less) {
        return Err(Refusal::of(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if when.greater && when.less {
        return Err(Refusal::of(
            "ERR GT and LT options at the same time are not compatible",
        ));
    }
    Ok(Command::Expire {
        key,
        seconds: integer(&seconds)?,
        when,
    })
}

pub(super) fn scan(mut arguments: Arguments) -> Parsed {
    let cursor = arguments.need()?;
    let cursor = std::str::from_utf8(&cursor)
        .ok()
        .and_then(|cursor| cursor.parse().ok());
    let cursor = cursor.ok_or(Refusal::of("ERR invalid cursor"))?;
    let (mut count, mut pattern, mut kind) = (10, None, None);
    while arguments.left() > 0 {
        if arguments.take("COUNT") {
            count = usize::try_from(arguments.integer()?)
                .ok()
                .filter(|count| *count > 0)
                .ok_or(Refusal::SYNTAX)?;
        } else if arguments.take("MATCH") {
            pattern = Some(arguments.need()?);
        } else if arguments.take("TYPE") {
            kind = Some(String::from_utf8_lossy(&arguments.need()?).into_owned());
        } else {
            return Err(Refusal::SYNTAX);
        }
    }
    Ok(Command::Scan {
        cursor,
        count,
        pattern,
        kind,
    })
}

pub(super) fn hash_set(mut arguments: Arguments) -> Parsed {
    let key = arguments.need()?;
    if !arguments.left().is_multiple_of(2) {
        return Err(Refusal::of(
            "ERR wrong number of arguments for 'hset' command",
        ));
    }
    Ok(Command::HashSet {
        key,
        fields: pairs(arguments),
    })
}

fn pairs(mut arguments: Arguments) -> Vec<(Bytes, Bytes)> {
    let mut pairs = Vec::with_capacity(arguments.left() / 2);
    while let Some(pair) = arguments.next().zip(arguments.next()) {
        pairs.push(pair);
    }
    pairs
}

pub(super) fn hash_get(mut arguments: Arguments) -> Parsed {
    Ok(Command::HashGet {
        key: arguments.need()?,
        field: arguments.need()?,
    })
}

pub(super) fn hash_all(mut arguments: Arguments) -> Parsed {
    Ok(Command::HashAll(arguments.need()?))
}

pub(super) fn hash_delete(mut arguments: Arguments) -> Parsed {
    Ok(Command::HashDelete {
        key: arguments.need()?,
        fields: arguments.rest(),
    })
}

pub(super) fn add(mut arguments: Arguments) -> Parsed {
    let key = arguments.need()?;
    let mut make = true;
    let mut trimming = Trimming::default();
    loop {
        if arguments.take("NOMKSTREAM") {
            make = false;
        } else if !trimming.take(&mut arguments)? {
            break;
        }
    }
    const TOO_FEW: Refusal = Refusal::of("ERR wrong number of arguments for 'xadd' command");
    let trim = trimming.finish()?;
    let id = arguments.next().ok_or(TOO_FEW)?;
    let id = match &id[..] {
        b"*" => NewId::Auto,
        [ms @ .., b'-', b'*'] if !ms.contains(&b'-') => NewId::Millis(entry_id(ms, 0)?.ms),
        text => NewId::Exact(entry_id(text, 0)?),
    };
    if id == NewId::Exact(EntryId::ZERO) {
        return Err(Refusal::ID_ZERO);
    }
    if arguments.left() < 2 || !arguments.left().is_multiple_of(2) {
        return Err(TOO_FEW);
    }
    Ok(Command::Add {
        key,
        fields: Fields::from(pairs(arguments)),
        options: AddOptions { id, make, trim },
    })
}

/// The options that say what to trim, in the order they come.
#[derive(Debug, Default)]
struct Trimming {
    keep: Option<Keep>,
    approximate: bool,
    limit: Option<usize>,
}

impl Trimming {
    /// Takes the next option, if it is one of these.
    fn take(&mut self, arguments: &mut Arguments) -> Result<bool, Refusal> {
        let by_len = arguments
            .peek()
            .is_some_and(|next| next.eq_ignore_ascii_case(b"MAXLEN"));
        let by_id = arguments
            .peek()
            .is_some_and(|next| next.eq_ignore_ascii_case(b"MINID"));
        if (by_len || by_id) && arguments.peek_second().is_some() {
            arguments.next();
            if self.keep.is_some() {
                return Err(Refusal::of(
                    "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                ));
            }
            self.approximate = arguments.left() > 1 && arguments.take("~");
            if !self.approximate && arguments.left() > 1 {
                arguments.take("=");
            }
            let bound = arguments.need()?;
            self.keep = Some(if by_len {
                let most = u64::try_from(integer(&bound)?);
                Keep::Newest(
                    most.map_err(|_| Refusal::of("ERR The MAXLEN argument must be >= 0."))?,
                )
            } else {
                Keep::From(entry_id(&bound, 0)?)
            });
            return Ok(true);
        }
        if arguments.peek_second().is_some() && arguments.take("LIMIT") {
            let limit = usize::try_from(arguments.integer()?);
            self.limit =
                Some(limit.map_err(|_| Refusal::of("ERR The LIMIT argument must be >= 0."))?);
            return Ok(true);
        }
        Ok(false)
    }

    fn finish(self) -> Result<Option<Trim>, Refusal> {
        let Some(keep) = self.keep else {
            return match self.limit {
                None => Ok(None),
                Some(_) => Err(Refusal::of(
                    "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
                )),
            };
        };
        if self.limit.is_some() && !self.approximate {
            return Err(Refusal::of(
                "ERR syntax error, LIMIT cannot be used without the special ~ option",
            ));
        }
        let approximate = self
            .approximate
            .then(|| self.limit.unwrap_or(APPROXIMATE_LIMIT));
        Ok(Some(Trim { keep, approximate }))
    }
}

pub(super) fn trim(mut arguments: Arguments) -> Parsed {
    let key = arguments.need()?;
    let mut trimming = Trimming::default();
    while trimming.take(&mut arguments)? {}
    arguments.end()?;
    const NONE: Refusal =
        Refusal::of("ERR syntax error, XTRIM must be called with a trimming strategy");
    Ok(Command::Trim {
        key,
        trim: trimming.finish()?.ok_or(NONE)?,
    })
}

pub(super) fn len(mut arguments: Arguments) -> Parsed {
    Ok(Command::Len(arguments.need()?))
}

pub(super) fn range(arguments: Arguments) -> Parsed {
    interval(arguments, false)
}

pub(super) fn reverse_range(arguments: Arguments) -> Parsed {
    interval(arguments, true)
}

fn interval(mut arguments: Arguments, reverse: bool) -> Parsed {
    let (key, first, second) = (arguments.need()?, arguments.need()?, arguments.need()?);
    let (from, to) = if reverse {
        (second, first)
    } else {
        (first, second)
    };
    let (from, to) = (interval_start(&from)?, interval_end(&to)?);
    let mut count = None;
    while arguments.left() > 0 {
        if arguments.peek_second().is_none() || !arguments.take("COUNT") {
            return Err(Refusal::SYNTAX);
        }
        count = Some(usize::try_from(arguments.integer()?.max(0)).unwrap_or(usize::MAX));
    }
    Ok(Command::Range {
        key,
        from,
        to,
        count,
        reverse,
    })
}

pub(super) fn read(arguments: Arguments) -> Parsed {
    reading(arguments, false)
}

pub(super) fn read_group(arguments: Arguments) -> Parsed {
    reading(arguments, true)
}

fn reading(mut arguments: Arguments, as_group: bool) -> Parsed {
    let (mut member, mut count, mut block, mut keep_pending) = (None, usize::MAX, None, true);
    let mut named = false;
    while arguments.left() > 0 {
        if arguments.peek_second().is_some() && arguments.take("BLOCK") {
            let timeout = integer(&arguments.need()?)
                .map_err(|_| Refusal::of("ERR timeout is not an integer or out of range"))?;
            block =
                Some(u64::try_from(timeout).map_err(|_| Refusal::of("ERR timeout is negative"))?);
        } else if arguments.peek_second().is_some() && arguments.take("COUNT") {
            count = usize::try_from(arguments.integer()?)
                .ok()
                .filter(|count| *count > 0)
                .unwrap_or(usize::MAX);
        } else if arguments.left() > 2 && arguments.take("GROUP") {
            if !as_group {
                return Err(Refusal::of(
                    "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            member = Some((arguments.need()?, arguments.need()?));
        } else if arguments.take("NOACK") {
            if !as_group {
                return Err(Refusal::of(
                    "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            keep_pending = false;
        } else if arguments.peek_second().is_some() && arguments.take("STREAMS") {
            named = true;
            break;
        } else {
            return Err(Refusal::SYNTAX);
        }
    }
    if !named {
        return Err(Refusal::SYNTAX);
    }
    let mut keys = arguments.rest();
    if !keys.len().is_multiple_of(2) {
        return Err(Refusal::of(
            "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
        ));
    }
    let ids = keys.split_off(keys.len() / 2);
    if as_group && member.is_none() {
        return Err(Refusal::of("ERR Missing GROUP option for XREADGROUP"));
    }
    let streams = keys
        .into_iter()
        .zip(ids)
        .map(|(key, id)| start(&id, as_group).map(|from| (key, from)));
    Ok(Command::Read(Reading {
        member,
        streams: streams.collect::<Result<_, _>>()?,
        count,
        block,
        keep_pending,
    }))
}

fn start(id: &[u8], as_group: bool) -> Result<From, Refusal> {
    match (id, as_group) {
        (b"$", false) => Ok(From::End),
        (b"$", true) => Err(Refusal::of(
            "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.",
        )),
        (b">", true) => Ok(From::New),
        (b">", false) => Err(Refusal::of(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
        )),
        (id, _) => Ok(From::After(entry_id(id, 0)?)),
    }
}

pub(super) fn group_create(mut arguments: Arguments) -> Parsed {
    let (key, group, id) = (arguments.need()?, arguments.need()?, arguments.need()?);
    let (mut make, mut entries_read) = (false, None);
    while arguments.left() > 0 {
        if arguments.take("MKSTREAM") {
            make = true;
        } else if arguments.peek_second().is_some() && arguments.take("ENTRIESREAD") {
            let read = arguments.integer()?;
            if read < -1 {
                return Err(Refusal::of(
                    "ERR value for ENTRIESREAD must be positive or -1",
                ));
            }
            entries_read = u64::try_from(read).ok();
        } else {
            return Err(Refusal::of(
                "ERR unknown subcommand or wrong number of arguments for 'CREATE'. Try XGROUP HELP.",
            ));
        }
    }
    let from = if &id[..] == b"$" {
        None
    } else {
        Some(entry_id(&id, 0)?)
    };
    Ok(Command::GroupCreate {
        key,
        group,
        from,
        entries_read,
        make,
    })
}

pub(super) fn group_destroy(mut arguments: Arguments) -> Parsed {
    Ok(Command::GroupDestroy {
        key: arguments.need()?,
        group: arguments.need()?,
    })
}

pub(super) fn acknowledge(mut arguments: Arguments) -> Parsed {
    Ok(Command::Acknowledge {
        key: arguments.need()?,
        group: arguments.need()?,
        ids: arguments.rest(),
    })
}

pub(super) fn pending(mut arguments: Arguments) -> Parsed {
    let (key, group) = (arguments.need()?, arguments.need()?);
    if arguments.left() == 0 {
        return Ok(Command::PendingSummary { key, group });
    }
    if !(3..=6).contains(&arguments.left()) {
        return Err(Refusal::SYNTAX);
    }
    let mut min_idle = 0;
    if arguments.take("IDLE") {
        min_idle = u64::try_from(arguments.integer()?).unwrap_or(0);
        if arguments.left() < 3 {
            return Err(Refusal::SYNTAX);
        }
    }
    let (from, to, count) = (arguments.need()?, arguments.need()?, arguments.integer()?);
    let count = usize::try_from(count).unwrap_or(0);
    let (from, to) = (interval_start(&from)?, interval_end(&to)?);
    let consumer = arguments.next();
    Ok(Command::Pending {
        key,
        group,
        query: PendingQuery {
            from,
            to,
            count,
            min_idle,
            consumer,
        },
    })
}

pub(super) fn auto_claim(mut arguments: Arguments) -> Parsed {
    let (key, group, consumer) = (arguments.need()?, arguments.need()?, arguments.need()?);
    let min_idle = integer(&arguments.need()?)
        .map_err(|_| Refusal::of("ERR Invalid min-idle-time argument for XAUTOCLAIM"))?;
    let min_idle = u64::try_from(min_idle).unwrap_or(0);
    let from = interval_start(&arguments.need()?)?;
    let (mut count, mut ids_only) = (100, false);
    while arguments.left() > 0 {
        if arguments.peek_second().is_some() && arguments.take("COUNT") {
            let most = integer(&arguments.need()?)
                .ok()
                .and_then(|count| usize::try_from(count).ok());
            count = most
                .filter(|count| *count > 0)
                .ok_or(Refusal::of("ERR COUNT must be > 0"))?;
        } else if arguments.take("JUSTID") {
            ids_only = true;
        } else {
            return Err(Refusal::SYNTAX);
        }
    }
    Ok(Command::AutoClaim {
        key,
        group,
        consumer,
        min_idle,
        from,
        count,
        ids_only,
    })
}

pub(super) fn stream_info(mut arguments: Arguments) -> Parsed {
    let key = arguments.need()?;
    arguments.end()?;
    Ok(Command::StreamInfo(key))
}

pub(super) fn groups_info(mut arguments: Arguments) -> Parsed {
    Ok(Command::GroupsInfo(arguments.need()?))
}
