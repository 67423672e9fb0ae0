//! From arguments to commands: string keys, hashes, and streams without groups.

use bytes::Bytes;
use crossway_core::entry::{EntryId, Fields};

use super::arguments::{Arguments, entry_id, integer, interval_end, interval_start};
use super::command::{Command, Ttl};
use crate::streams::embedded::engine::{
    AddOptions, ExpireWhen, Keep, NewId, Refusal, SetWhen, Trim,
};

/// How many entries an approximate trim takes away at most, where the client doesn't say.
const APPROXIMATE_LIMIT: usize = 10_000;

pub(super) type Parsed = Result<Command, Refusal>;

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
