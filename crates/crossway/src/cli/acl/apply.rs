//! `crossway acl apply`.

use std::path::PathBuf;

use clap::Args;
use redis::Value as Answered;
use serde_json::{Value, json};

use super::password::{self, Password};
use super::{User, Whom, open};
use crate::cli::output::Output;
use crate::cli::store::{Store, StoreError};
use crate::cli::{Answer, CliError, Common};

/// How often rules are set anew because channels were opened or closed meanwhile.
const ATTEMPTS: usize = 16;

/// Rules to be put into force.
#[derive(Debug, Args)]
pub(in crate::cli) struct Apply {
    #[command(flatten)]
    whom: Whom,
    /// A file to be made for the passwords of new users, a line each; only its owner may read it.
    #[arg(long, value_name = "FILE")]
    passwords: Option<PathBuf>,
    /// Have the server write its users to its file, so that they outlive a restart.
    #[arg(long)]
    save: bool,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
}

/// What there is of a user, before and after.
struct Standing {
    user: User,
    /// As the store describes it; nothing where there is none.
    before: Answered,
}

impl Standing {
    fn is_new(&self) -> bool {
        self.before == Answered::Nil
    }
}

impl Apply {
    pub(super) async fn run(self, common: &Common, output: Output) -> Result<Answer, CliError> {
        let mut store = open(common).await?;
        let mut standings = Vec::new();
        for user in self.whom.users(&mut store).await? {
            let before = describe(&mut store, &user.name).await?;
            standings.push(Standing { user, before });
        }
        // Whoever does this may be one of them, and may be unable to go on afterwards.
        let me = store.run(redis::cmd("ACL").arg("WHOAMI")).await?;
        let me: String = redis::from_redis_value(me).unwrap_or_default();
        standings.sort_by_key(|standing| standing.user.name == me);

        let mut made = Vec::new();
        for standing in standings.iter().filter(|standing| standing.is_new()) {
            made.push((standing.user.name.clone(), Password::draw()?));
        }
        if !self.dry_run {
            self.keep(&made)?;
        }
        let mut told = Vec::new();
        for standing in &standings {
            let password = made
                .iter()
                .find(|(name, _)| *name == standing.user.name)
                .map(|(_, password)| password);
            if !self.dry_run {
                set(&mut store, &standing.user, password).await?;
            }
            told.push(self.tell(&mut store, standing).await?);
        }
        if !self.dry_run {
            self.settle(&mut store, &standings).await?;
        }
        let save = self.save && !self.dry_run;
        if save {
            let saved = store.run(redis::cmd("ACL").arg("SAVE")).await;
            saved.map_err(|error| {
                CliError::Input(format!(
                    "the rules are in force, but weren't saved: {error}"
                ))
            })?;
        }
        let mut text: String = told.iter().map(|told| told.text.as_str()).collect();
        if save {
            text.push_str("the server has written its users to its file\n");
        } else if !self.dry_run {
            text.push_str("they last until the server restarts, unless they are saved: --save, or in its configuration\n");
        }
        let users: Vec<Value> = told.into_iter().map(|told| told.object).collect();
        let passwords = self.passwords.as_ref().filter(|_| !made.is_empty());
        let object = json!({
            "applied": !self.dry_run,
            "users": users,
            "passwords": passwords.map(|path| path.display().to_string()),
            "saved": save,
        });
        output.answer(&object, text)?;
        Ok(Answer::Yes)
    }

    /// Writes the new passwords down before any is in force, so that none is ever lost.
    fn keep(&self, made: &[(String, Password)]) -> Result<(), CliError> {
        if made.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
        let Some(path) = &self.passwords else {
            return Err(CliError::Input(format!(
                "{} would be new: give --passwords FILE, where their passwords are to be written; nothing was changed",
                names.join(", ")
            )));
        };
        password::write(path, made).map_err(|error| {
            CliError::Input(format!(
                "--passwords {}: {error}; nothing was changed",
                path.display()
            ))
        })
    }

    async fn tell(&self, store: &mut Store, standing: &Standing) -> Result<Told, StoreError> {
        let (user, new) = (&standing.user, standing.is_new());
        let changed = if self.dry_run {
            None
        } else {
            // Whoever has just taken its own right to look can't tell.
            let after = describe(store, &user.name).await.ok();
            after.map(|after| after != standing.before)
        };
        let open = flags(&standing.before).iter().any(|flag| flag == "nopass");
        let mut text = match (new, self.dry_run, changed) {
            (true, true, _) => format!("{}: would be a new user", user.name),
            (true, false, _) => format!("{}: a new user, its password is in the file", user.name),
            (false, true, _) => format!("{}: would have its rules set anew", user.name),
            (false, false, Some(false)) => format!("{}: had these rules already", user.name),
            (false, false, _) => {
                format!("{}: its rules are set anew, its passwords kept", user.name)
            }
        };
        if open {
            text.push_str("; it needs no password, so anybody can be it: ACL SETUSER … resetpass");
        }
        text.push('\n');
        let mut object = user.shown();
        if let Value::Object(fields) = &mut object {
            fields.insert("new".to_owned(), new.into());
            fields.insert("changed".to_owned(), changed.into());
            fields.insert("nopass".to_owned(), open.into());
        }
        Ok(Told { text, object })
    }

    /// Looks again whether the rules are what they should be: a channel may have been opened or
    /// closed since they were derived.
    async fn settle(&self, store: &mut Store, standings: &[Standing]) -> Result<(), CliError> {
        let mut before: Vec<User> = standings
            .iter()
            .map(|standing| standing.user.clone())
            .collect();
        for _ in 0..ATTEMPTS {
            // Whoever has just taken its own right to look has no more to do here.
            let Ok(after) = self.whom.users(store).await else {
                return Ok(());
            };
            let late: Vec<&User> = after.iter()// One that came to be registered meanwhile isn't among those that were asked for.
                .filter(|user| before.iter().any(|known| known.name == user.name && known != *user)).collect();
            if late.is_empty() {
                return Ok(());
            }
            for user in late {
                set(store, user, None).await?;
            }
            before = after;
        }
        Err(CliError::Input(
            "channels kept being opened and closed while their access was set; run it again"
                .to_owned(),
        ))
    }
}

/// What was done about a user.
struct Told {
    text: String,
    object: Value,
}

async fn describe(store: &mut Store, user: &str) -> Result<Answered, StoreError> {
    store.run(redis::cmd("ACL").arg("GETUSER").arg(user)).await
}

async fn set(
    store: &mut Store,
    user: &User,
    password: Option<&Password>,
) -> Result<(), StoreError> {
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg(&user.name).arg(&user.rules);
    if let Some(password) = password {
        command.arg(password.rule()).arg("on");
    }
    store.run(&command).await.map(drop)
}

/// The flags of a user as the store describes it: `on`, `nopass` and so on.
fn flags(described: &Answered) -> Vec<String> {
    let pairs: Vec<(&Answered, &Answered)> = match described {
        Answered::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        Answered::Array(words) => words
            .chunks_exact(2)
            .filter_map(|pair| Some((pair.first()?, pair.last()?)))
            .collect(),
        _ => Vec::new(),
    };
    let of = |(name, value): (&Answered, &Answered)| {
        let name: String = redis::from_redis_value(name.clone()).ok()?;
        (name == "flags").then(|| redis::from_redis_value(value.clone()).unwrap_or_default())
    };
    pairs.into_iter().find_map(of).unwrap_or_default()
}
