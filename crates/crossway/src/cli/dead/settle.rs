//! `crossway dead retry|drop`.

use clap::Args;
use crossway_core::address::Environment;
use crossway_core::entry::{EntryId, Fields};
use redis::Value as Answered;
use serde_json::json;

use super::{Found, environments, newest, range, read};
use crate::cli::output::Output;
use crate::cli::store::Store;
use crate::cli::{Answer, CliError};
use crossway_relay::DeadLetter;

const RETRY: &str = include_str!("retry.lua");

/// Which letters.
#[derive(Debug, Args)]
#[group(required = true, multiple = false, args = ["id", "all"])]
pub(in crate::cli) struct Which {
    /// The letter's id, as the list has it.
    id: Option<String>,
    /// All letters, in the order of their originals.
    #[arg(long)]
    all: bool,
    /// Only those of this environment.
    #[arg(long)]
    env: Option<String>,
}

impl Which {
    async fn find(&self, store: &mut Store) -> Result<Vec<Found>, CliError> {
        let mut letters = Vec::new();
        for environment in environments(store, self.env.as_deref())? {
            match &self.id {
                Some(id) => letters.extend(one(store, &environment, id).await?),
                None => {
                    letters.extend(newest(store, &environment, usize::MAX, |_| true).await?.0);
                }
            }
        }
        if self.id.is_some() && letters.len() > 1 {
            let reason = "several environments have a letter of this id: say which with --env";
            return Err(CliError::Input(reason.to_owned()));
        }
        letters.sort_by_key(|found| (found.letter.entry, found.id));
        Ok(letters)
    }

    /// Sends the originals on their way again.
    pub(super) async fn retry(self, store: &mut Store, output: Output) -> Result<Answer, CliError> {
        let (mut retried, mut kept) = (Vec::new(), Vec::new());
        for found in self.find(store).await? {
            let id = found.id.to_string();
            match again(store, &found).await? {
                Ok(()) => retried.push(id),
                Err(reason) => kept.push(json!({"id": id, "reason": reason})),
            }
        }
        let mut text = format!("{} retried", retried.len());
        for letter in &kept {
            text.push_str(&format!("\n{} stays: {}", letter["id"], letter["reason"]));
        }
        let done = kept.is_empty() && (self.all || !retried.is_empty());
        output.answer(&json!({"retried": retried, "kept": kept}), text)?;
        Ok(if done { Answer::Yes } else { Answer::No })
    }

    /// Throws letters away.
    pub(super) async fn discard(
        self,
        store: &mut Store,
        output: Output,
    ) -> Result<Answer, CliError> {
        let mut dropped = Vec::new();
        for found in self.find(store).await? {
            let key = store.keys.dead(&found.environment);
            let id = found.id.to_string();
            if store.run(redis::cmd("XDEL").arg(&*key).arg(&id)).await? == Answered::Int(1) {
                dropped.push(id);
            }
        }
        let done = self.all || !dropped.is_empty();
        let text = format!("{} dropped", dropped.len());
        output.answer(&json!({"dropped": dropped}), text)?;
        Ok(if done { Answer::Yes } else { Answer::No })
    }
}

async fn one(
    store: &mut Store,
    environment: &Environment,
    id: &str,
) -> Result<Vec<Found>, CliError> {
    let id: EntryId = id
        .parse()
        .map_err(|error| CliError::Input(format!("letter {id:?}: {error}")))?;
    let (entries, _) = read(store, environment, "XRANGE", id, id, 1).await?;
    let letter = |(id, fields): (EntryId, Fields)| {
        let letter = DeadLetter::read(&fields)
            .map_err(|error| CliError::Input(format!("entry {id}: {error}")))?;
        let environment = environment.clone();
        Ok(Found {
            id,
            environment,
            letter,
        })
    };
    entries.into_iter().map(letter).collect()
}

/// Appends the original again and removes the letter, in one step; or why that can't be.
async fn again(store: &mut Store, found: &Found) -> Result<Result<(), String>, CliError> {
    let letter = &found.letter;
    if let Err(error) = store.keys.parse_unified(&letter.stream) {
        return Ok(Err(format!("its stream is none of a site: {error}")));
    }
    let fields = if letter.whole {
        letter.original.clone()
    } else {
        let here = letter.entry;
        let (entries, _) = range(store, &letter.stream, "XRANGE", here, here, 1).await?;
        match entries.into_iter().next() {
            Some((_, fields)) => fields,
            None => {
                return Ok(Err(
                    "only a part was kept, and its stream has lost the rest".to_owned(),
                ));
            }
        }
    };
    let mut script = redis::cmd("EVAL");
    script.arg(RETRY).arg(2);
    script
        .arg(&*store.keys.dead(&found.environment))
        .arg(&letter.stream);
    script.arg(found.id.to_string());
    for (name, value) in &fields {
        script.arg(&name[..]).arg(&value[..]);
    }
    Ok(match store.run(&script).await? {
        Answered::Nil => Err("somebody else has taken it".to_owned()),
        _ => Ok(()),
    })
}
