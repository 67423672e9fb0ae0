//! `crossway dead list|show|retry|drop`.

mod settle;

use std::time::Duration;

use clap::{Args, Subcommand};
use crossway_core::address::Environment;
use crossway_core::entry::{EntryId, Fields};
use crossway_core::message::Message;
use crossway_relay::DeadLetter;
use redis::Value as Answered;
use serde_json::{Value, json};

use super::output::Output;
use super::store::Store;
use super::{Answer, CliError, Common, known_environment};

/// Letters that are read at a time.
const PAGE: usize = 100;

/// What to do with what couldn't be delivered.
#[derive(Debug, Subcommand)]
pub(super) enum Dead {
    /// Show the newest dead letters of all environments, oldest first.
    List(List),
    /// Show one, with all fields of the original.
    Show(Show),
    /// Send originals on their way again, on a server; each makes its whole crossing anew.
    Retry(settle::Which),
    /// Throw letters away, on a server.
    Drop(settle::Which),
}

/// Which letters to list.
#[derive(Debug, Args)]
pub(super) struct List {
    /// Only those of this environment.
    #[arg(long)]
    env: Option<String>,
    /// Only those with this code, as `RELAY.UNDELIVERABLE`.
    #[arg(long, value_name = "CODE")]
    reason: Option<String>,
    /// The most letters of each environment.
    #[arg(long, default_value_t = 50)]
    count: usize,
}

/// A letter.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// Its id, as the list has it.
    id: String,
    /// The environment, where several have a letter of this id.
    #[arg(long)]
    env: Option<String>,
}

/// A letter and where it lies.
struct Found {
    id: EntryId,
    environment: Environment,
    letter: DeadLetter,
}

impl Dead {
    pub(super) async fn run(self, common: &Common, output: Output) -> Result<Answer, CliError> {
        let mut store = Store::open(common, Duration::ZERO).await?;
        match self {
            Dead::List(list) => list.run(&mut store, output).await,
            Dead::Show(show) => show.run(&mut store, output).await,
            Dead::Retry(which) => which.retry(&mut store, output).await,
            Dead::Drop(which) => which.discard(&mut store, output).await,
        }
    }
}

impl List {
    async fn run(self, store: &mut Store, output: Output) -> Result<Answer, CliError> {
        let mut letters = Vec::new();
        let mut unreadable = 0;
        for environment in environments(store, self.env.as_deref())? {
            let wanted =
                |letter: &DeadLetter| self.reason.as_ref().is_none_or(|r| *r == letter.code);
            let (found, faults) = newest(store, &environment, self.count, wanted).await?;
            letters.extend(found);
            unreadable += faults;
        }
        letters.sort_by_key(|found| found.id);
        let mut text: Vec<String> = letters.iter().map(Found::line).collect();
        if letters.is_empty() {
            text.push("no dead letters".to_owned());
        }
        if unreadable > 0 {
            text.push(format!(
                "{unreadable} entries of the dead streams are no dead letters"
            ));
        }
        let letters: Vec<Value> = letters.iter().map(Found::summary).collect();
        let object = json!({"letters": letters, "unreadable": unreadable});
        output.answer(&object, text.join("\n"))?;
        Ok(Answer::Yes)
    }
}

impl Show {
    async fn run(self, store: &mut Store, output: Output) -> Result<Answer, CliError> {
        let id: EntryId = self
            .id
            .parse()
            .map_err(|error| CliError::Input(format!("letter {:?}: {error}", self.id)))?;
        let mut found = Vec::new();
        for environment in environments(store, self.env.as_deref())? {
            let (entries, _) = read(store, &environment, "XRANGE", id, id, 1).await?;
            for (id, fields) in entries {
                let letter = DeadLetter::read(&fields)
                    .map_err(|error| CliError::Input(format!("entry {id}: {error}")))?;
                found.push(Found {
                    id,
                    environment: environment.clone(),
                    letter,
                });
            }
        }
        let [one] = &found[..] else {
            if found.is_empty() {
                let text = format!("there is no dead letter {id}");
                output.answer(&json!({"letter": null}), text)?;
                return Ok(Answer::No);
            }
            let reason = format!("several environments have a letter {id}: say which with --env");
            return Err(CliError::Input(reason));
        };
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = one.letter.original.iter();
        let fields: Vec<(String, String)> = fields
            .map(|(name, value)| (shown(name), shown(value)))
            .collect();
        let mut text = format!("{}\n", one.line());
        if !one.letter.whole {
            text.push_str("only a part is here; the rest is in its stream\n");
        }
        for (name, value) in &fields {
            text.push_str(&format!("  {name}  {value}\n"));
        }
        let mut object = one.summary();
        if let Some(object) = object.as_object_mut() {
            object.insert("fields".to_owned(), json!(fields));
        }
        output.answer(&json!({"letter": object}), text)?;
        Ok(Answer::Yes)
    }
}

impl Found {
    fn summary(&self) -> Value {
        let message = Message::read(&self.letter.original);
        json!({
            "id": self.id.to_string(),
            "environment": self.environment.as_str(),
            "code": self.letter.code,
            "reason": self.letter.reason,
            "stream": self.letter.stream,
            "entry": self.letter.entry.to_string(),
            "attempts": self.letter.attempts,
            "at": self.letter.at_ms,
            "whole": self.letter.whole,
            "target": message.target(),
            "command": message.command(),
        })
    }

    fn line(&self) -> String {
        let message = Message::read(&self.letter.original);
        format!(
            "{}  {}  {}  {} -> {}  {}  {} attempts  {}",
            self.id,
            self.environment.as_str(),
            self.letter.code,
            self.letter.stream,
            message.target().unwrap_or_default(),
            message.command(),
            self.letter.attempts,
            self.letter.reason,
        )
    }
}

fn environments(store: &Store, only: Option<&str>) -> Result<Vec<Environment>, CliError> {
    Ok(match only {
        Some(name) => vec![known_environment(&store.keys, name)?.clone()],
        None => store.keys.environments().to_vec(),
    })
}

/// The newest letters of an environment that are wanted, newest first, and how many entries
/// couldn't be read on the way.
async fn newest(
    store: &mut Store,
    environment: &Environment,
    count: usize,
    wanted: impl Fn(&DeadLetter) -> bool,
) -> Result<(Vec<Found>, usize), CliError> {
    let (mut found, mut unreadable) = (Vec::new(), 0);
    let mut before = EntryId::MAX;
    loop {
        let (page, last) =
            read(store, environment, "XREVRANGE", before, EntryId::ZERO, PAGE).await?;
        for (id, fields) in page {
            match DeadLetter::read(&fields) {
                Ok(letter) if wanted(&letter) && found.len() < count => found.push(Found {
                    id,
                    environment: environment.clone(),
                    letter,
                }),
                Ok(_) => {}
                Err(_) => unreadable += 1,
            }
        }
        match last.and_then(EntryId::previous) {
            Some(previous) if found.len() < count => before = previous,
            _ => return Ok((found, unreadable)),
        }
    }
}

/// Entries of an environment's dead stream, and the id of the last of them.
async fn read(
    store: &mut Store,
    environment: &Environment,
    command: &'static str,
    from: EntryId,
    to: EntryId,
    count: usize,
) -> Result<(Vec<(EntryId, Fields)>, Option<EntryId>), CliError> {
    let key = store.keys.dead(environment);
    range(store, &key, command, from, to, count).await
}

/// Entries of a stream, and the id of the last of them.
async fn range(
    store: &mut Store,
    key: &str,
    command: &'static str,
    from: EntryId,
    to: EntryId,
    count: usize,
) -> Result<(Vec<(EntryId, Fields)>, Option<EntryId>), CliError> {
    let mut range = redis::cmd(command);
    range.arg(key);
    range.arg(from.to_string()).arg(to.to_string());
    range.arg("COUNT").arg(count);
    let answer: Answered = store.run(&range).await?;
    let entries: Vec<(String, Vec<Vec<u8>>)> = redis::from_redis_value(answer)
        .map_err(|error| CliError::Input(format!("the dead stream can't be read: {error}")))?;
    let mut read = Vec::with_capacity(entries.len());
    for (id, words) in entries {
        let id: EntryId = id
            .parse()
            .map_err(|error| CliError::Input(format!("the dead stream, entry {id:?}: {error}")))?;
        let mut fields = Fields::with_capacity(words.len() / 2);
        let mut words = words.into_iter();
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            fields.push(name, value);
        }
        read.push((id, fields));
    }
    let last = read.last().map(|(id, _)| *id);
    Ok((read, last))
}
