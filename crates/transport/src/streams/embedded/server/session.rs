//! What a connection knows about its client, and the commands about that.

use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::House;
use super::arguments::integer;
use super::reply::{Protocol, Reply};
use super::show;
use super::table::{Session as About, wrong_number};
use crate::streams::embedded::engine::Refusal;

/// The version that clients are told; they go by it in what they ask for.
const VERSION: &str = "7.0.15";

const WRONG_PASSWORD: Reply = Reply::Error(std::borrow::Cow::Borrowed(
    "WRONGPASS invalid username-password pair or user is disabled.",
));

pub(super) struct Session {
    pub(super) id: u64,
    pub(super) protocol: Protocol,
    /// It has given the password, or there is none.
    pub(super) known: bool,
}

/// What to do after a command about the session.
pub(super) enum Next {
    Go(Reply),
    /// The answer is the last one.
    Leave(Reply),
}

impl Session {
    pub(super) fn new(id: u64, house: &House) -> Session {
        Session {
            id,
            protocol: Protocol::Two,
            known: house.options.password.is_none(),
        }
    }

    pub(super) fn run(&mut self, about: About, words: &[Bytes], house: &House) -> Next {
        let arguments = words.get(1..).unwrap_or_default();
        Next::Go(match about {
            About::Quit => return Next::Leave(Reply::OK),
            About::Auth => self.auth(arguments, house),
            About::Hello => self.hello(arguments, house),
            About::Ping => match arguments {
                [] => Reply::Simple("PONG"),
                [text] => Reply::Bulk(text.clone()),
                _ => wrong_number("ping"),
            },
            About::Select => match arguments.first().map(|index| integer(index)) {
                Some(Ok(0)) => Reply::OK,
                Some(Err(refusal)) => refusal.into(),
                _ => Refusal::of("ERR DB index is out of range").into(),
            },
            About::ClientId => Reply::number(self.id),
            About::ClientSetName => set_name(arguments.get(1)),
            About::ClientSetInfo => Reply::OK,
            About::Info => Reply::Text(info(house)),
            About::Commands => show::commands(),
            About::CommandCount => show::command_count(),
            About::CommandDocs => show::command_docs(arguments.get(1..).unwrap_or_default()),
        })
    }

    fn auth(&mut self, arguments: &[Bytes], house: &House) -> Reply {
        match arguments {
            [_] if house.options.password.is_none() => Refusal::of(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            )
            .into(),
            [password] => self.enter(b"default", password, house),
            [user, password] => self.enter(user, password, house),
            _ => Refusal::SYNTAX.into(),
        }
    }

    fn enter(&mut self, user: &[u8], password: &[u8], house: &House) -> Reply {
        let right = house
            .options
            .password
            .as_ref()
            .is_none_or(|expected| expected.is(password));
        if right && user == b"default" {
            self.known = true;
            Reply::OK
        } else {
            WRONG_PASSWORD
        }
    }

    fn hello(&mut self, arguments: &[Bytes], house: &House) -> Reply {
        let (version, mut rest) = match arguments.split_first() {
            None => (None, arguments),
            Some((version, rest)) => match integer(version) {
                Ok(2) => (Some(Protocol::Two), rest),
                Ok(3) => (Some(Protocol::Three), rest),
                Ok(_) => return Refusal::of("NOPROTO unsupported protocol version").into(),
                Err(_) => {
                    return Refusal::of("ERR Protocol version is not an integer or out of range")
                        .into();
                }
            },
        };
        let (mut login, mut name) = (None, None);
        loop {
            rest = match rest {
                [] => break,
                [word, user, password, rest @ ..] if word.eq_ignore_ascii_case(b"AUTH") => {
                    login = Some((user, password));
                    rest
                }
                [word, given, rest @ ..] if word.eq_ignore_ascii_case(b"SETNAME") => {
                    name = Some(given);
                    rest
                }
                [word, ..] => {
                    let text = format!(
                        "ERR Syntax error in HELLO option '{}'",
                        String::from_utf8_lossy(word)
                    );
                    return Reply::Error(text.into());
                }
            };
        }
        if let Some((user, password)) = login
            && self.enter(user, password, house) != Reply::OK
        {
            return WRONG_PASSWORD;
        }
        if !self.known {
            return Refusal::of(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
            )
            .into();
        }
        if name.is_some() {
            let named = set_name(name);
            if named != Reply::OK {
                return named;
            }
        }
        self.protocol = version.unwrap_or(self.protocol);
        let protocol = if self.protocol == Protocol::Three {
            3
        } else {
            2
        };
        Reply::Map(vec![
            (Reply::word("server"), Reply::word("redis")),
            (Reply::word("version"), Reply::word(VERSION)),
            (Reply::word("proto"), Reply::Int(protocol)),
            (Reply::word("id"), Reply::number(self.id)),
            (Reply::word("mode"), Reply::word("standalone")),
            (Reply::word("role"), Reply::word("master")),
            (Reply::word("modules"), Reply::Array(Vec::new())),
        ])
    }
}

/// A name is checked, and not kept: nothing here shows it.
fn set_name(name: Option<&Bytes>) -> Reply {
    match name {
        Some(name) if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) => Reply::OK,
        _ => Refusal::of("ERR Client names cannot contain spaces, newlines or special characters.")
            .into(),
    }
}

fn info(house: &House) -> String {
    let state = house.store.lock();
    let (keys, expires, blocked) = (
        state.engine.len(),
        state.engine.expiring(),
        state.blocked.len(),
    );
    let durable = u8::from(state.log.is_some());
    let failing = state.log.as_ref().is_some_and(|log| log.broken().is_some());
    drop(state);
    let keyspace = if keys > 0 {
        format!("db0:keys={keys},expires={expires},avg_ttl=0\r\n")
    } else {
        String::new()
    };
    format!(
        "# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\nprocess_id:{}\r\ntcp_port:{}\r\n\r\n\
         # Clients\r\nconnected_clients:{}\r\nmaxclients:{}\r\nblocked_clients:{blocked}\r\n\r\n\
         # Persistence\r\nloading:0\r\naof_enabled:{durable}\r\naof_last_write_status:{}\r\n\r\n\
         # Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
         # Cluster\r\ncluster_enabled:0\r\n\r\n\
         # Keyspace\r\n{keyspace}",
        std::process::id(),
        house.port,
        house.clients.load(Ordering::Relaxed),
        house.options.max_connections,
        if failing { "err" } else { "ok" },
    )
}
