//! From arguments to commands: reading, and what is about groups.

use super::arguments::{Arguments, entry_id, integer, interval_end, interval_start};
use super::command::{Command, From, Reading};
use super::parse::Parsed;
use crate::streams::embedded::engine::{PendingQuery, Refusal};

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
    if arguments.left() == 0 {
        return Ok(Command::StreamInfo { key, full: None });
    }
    const WRONG: Refusal = Refusal::of(
        "ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP.",
    );
    let options = arguments.left();
    if !arguments.take("FULL") {
        return Err(WRONG);
    }
    // 0 asks for all; below it stands for what isn't given.
    let mut count = 10;
    if options == 3 && arguments.take("COUNT") {
        let most = arguments.integer()?;
        count = usize::try_from(most).unwrap_or(count);
    }
    if arguments.left() > 0 {
        return Err(WRONG);
    }
    let full = Some(if count == 0 { usize::MAX } else { count });
    Ok(Command::StreamInfo { key, full })
}

pub(super) fn groups_info(mut arguments: Arguments) -> Parsed {
    Ok(Command::GroupsInfo(arguments.need()?))
}
