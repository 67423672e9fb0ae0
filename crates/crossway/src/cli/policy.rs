//! `crossway policy explain|list|set|remove`.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use crossway_core::address::SiteId;
use crossway_core::policy::{Action, Pair, Policy as Rules, Rule};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::output::Output;
use super::store::Store;
use super::{Answer, CliError, Common, argument};

/// What to do with the rules.
#[derive(Debug, Subcommand)]
pub(super) enum Policy {
    /// Tell whether a message would be let through, and which rule says so.
    Explain(Explain),
    /// Show all rules.
    List,
    /// Make or replace a rule; it holds for the next message.
    Set(Set),
    /// Remove a rule.
    Remove(Remove),
}

/// A message to be judged.
#[derive(Debug, Args)]
pub(super) struct Explain {
    /// The site that sends.
    #[arg(long)]
    source: String,
    /// The site that it is for.
    #[arg(long)]
    target: String,
    /// The command.
    #[arg(long)]
    command: String,
    /// Rules as a JSON object, or `@FILE`, or `-`; without it the store's.
    #[arg(long, value_name = "JSON")]
    rules: Option<String>,
    /// What holds where no rule speaks; without it what the configuration says.
    #[arg(long, value_name = "ACTION")]
    default: Option<Judgement>,
}

/// Allow or deny.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Judgement {
    /// The message goes on.
    Allow,
    /// The message is refused.
    Deny,
}

impl From<Judgement> for Action {
    fn from(judgement: Judgement) -> Action {
        match judgement {
            Judgement::Allow => Action::Allow,
            Judgement::Deny => Action::Deny,
        }
    }
}

/// A rule to be made.
#[derive(Debug, Args)]
pub(super) struct Set {
    /// The site that sends, or `*`.
    source: String,
    /// The site that it is for, or `*`.
    target: String,
    /// What the rule decides.
    action: Judgement,
    /// Why, for whoever is refused.
    #[arg(long, default_value = "")]
    reason: String,
    /// The commands it speaks for, separated by commas; `name*` for a prefix.
    #[arg(long, default_value = "*", value_delimiter = ',')]
    commands: Vec<String>,
}

/// A rule to be removed.
#[derive(Debug, Args)]
pub(super) struct Remove {
    /// The site that sends, or `*`.
    source: String,
    /// The site that it is for, or `*`.
    target: String,
}

impl Policy {
    pub(super) async fn run(self, common: &Common, output: Output) -> Result<Answer, CliError> {
        match self {
            Policy::Explain(explain) => explain.run(common, output).await,
            Policy::List => list(common, output).await,
            Policy::Set(set) => set.run(common, output).await,
            Policy::Remove(remove) => remove.run(common, output).await,
        }
    }
}

impl Explain {
    async fn run(self, common: &Common, output: Output) -> Result<Answer, CliError> {
        let site = |option: &str, name: &str| {
            SiteId::parse_spelled(name)
                .map_err(|error| CliError::Input(format!("{option} {name:?}: {error}")))
        };
        let (source, target) = (
            site("--source", &self.source)?,
            site("--target", &self.target)?,
        );
        let default = self.default.map(Action::from);
        let (rules, default, strict) = match &self.rules {
            Some(rules) => (
                given(&argument::text("--rules", rules)?)?,
                default.unwrap_or_default(),
                true,
            ),
            None => {
                let mut store = Store::open(common, Duration::ZERO).await?;
                let rules = store.hash(&store.keys.policy().clone()).await?;
                (
                    rules,
                    default.unwrap_or_else(|| store.config.relay.default_policy.into()),
                    false,
                )
            }
        };
        let (policy, faults) = Rules::compile(
            default,
            rules
                .iter()
                .map(|(name, rule)| (name.as_str(), rule.as_str())),
        );
        // Rules that were just typed should be right. The store's are judged as the daemon does:
        // what can't be read denies.
        if let (true, Some(fault)) = (strict, faults.first()) {
            return Err(CliError::Input(format!("--rules: {fault}")));
        }
        let decision = policy.decide(&source, &target, &self.command);
        let mut text = format!("{} by {}", decision.action, decision.rule);
        if !decision.reason.is_empty() {
            text.push_str(&format!(": {}", decision.reason));
        }
        let object =
            json!({"action": decision.action, "rule": decision.rule, "reason": decision.reason});
        output.answer(&object, text)?;
        Ok(match decision.action {
            Action::Allow => Answer::Yes,
            Action::Deny => Answer::No,
        })
    }
}

fn given(text: &str) -> Result<BTreeMap<String, String>, CliError> {
    let Given(rules) = serde_json::from_str(text).map_err(|error| {
        CliError::Input(format!(
            "--rules isn't a JSON object of \"source:target\" to rule: {error}"
        ))
    })?;
    Ok(rules)
}

/// Rules by name, each as its JSON text. A name that stands twice is refused: which of the two was
/// meant can't be told.
struct Given(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Given, D::Error> {
        struct Rules;

        impl<'de> Visitor<'de> for Rules {
            type Value = Given;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of rules")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Given, A::Error> {
                let mut rules = BTreeMap::new();
                while let Some((name, rule)) = map.next_entry::<String, Box<RawValue>>()? {
                    if rules.contains_key(&name) {
                        return Err(A::Error::custom(format!(
                            "the rule {name:?} is there twice"
                        )));
                    }
                    rules.insert(name, rule.get().to_owned());
                }
                Ok(Given(rules))
            }
        }

        deserializer.deserialize_map(Rules)
    }
}

async fn list(common: &Common, output: Output) -> Result<Answer, CliError> {
    let mut store = Store::open(common, Duration::ZERO).await?;
    let stored = store.hash(&store.keys.policy().clone()).await?;
    let mut rules = Map::new();
    let mut text = String::new();
    for (name, body) in &stored {
        match name.parse::<Pair>().and_then(|_| Rule::parse(name, body)) {
            Ok(rule) => {
                text.push_str(&format!(
                    "{name}  {}  {}  {}\n",
                    rule.action,
                    rule.commands.join(","),
                    rule.reason
                ));
                rules.insert(name.clone(), json!(rule));
            }
            Err(error) => {
                text.push_str(&format!("{name}  deny  *  can't be read: {error}\n"));
                rules.insert(
                    name.clone(),
                    json!({"action": "deny", "fault": error.to_string()}),
                );
            }
        }
    }
    let default = Action::from(store.config.relay.default_policy);
    text.push_str(&format!("default  {default}"));
    output.answer(
        &json!({"rules": Value::Object(rules), "default": default}),
        text,
    )?;
    Ok(Answer::Yes)
}

impl Set {
    async fn run(self, common: &Common, output: Output) -> Result<Answer, CliError> {
        let pair = pair(&self.source, &self.target)?;
        let rule = Rule {
            action: self.action.into(),
            reason: self.reason,
            commands: self.commands,
        };
        let body =
            serde_json::to_string(&rule).map_err(|error| CliError::Input(error.to_string()))?;
        // What is stored is what the daemon can read, by the daemon's own code.
        Rule::parse(&pair, &body).map_err(|error| CliError::Input(error.to_string()))?;
        if let Some(empty) = rule.commands.iter().position(String::is_empty) {
            return Err(CliError::Input(format!(
                "--commands: number {} is empty",
                empty + 1
            )));
        }
        let mut store = Store::open(common, Duration::ZERO).await?;
        store
            .hash_set(&store.keys.policy().clone(), &pair, &body)
            .await?;
        output.answer(
            &json!({"set": pair, "rule": rule}),
            format!("{pair} is set"),
        )?;
        Ok(Answer::Yes)
    }
}

impl Remove {
    async fn run(self, common: &Common, output: Output) -> Result<Answer, CliError> {
        // A rule that can't be read must be removable too, so the name is taken as it is written.
        let written = format!("{}:{}", self.source, self.target);
        let names = match Pair::new(&self.source, &self.target) {
            Ok(pair) => pair.spellings(),
            Err(_) => vec![written.clone()],
        };
        let name = names.first().cloned().unwrap_or(written);
        let mut store = Store::open(common, Duration::ZERO).await?;
        let removed = store
            .hash_remove(&store.keys.policy().clone(), &names)
            .await?;
        let text = if removed {
            format!("{name} is removed")
        } else {
            format!("there is no rule {name}")
        };
        output.answer(&json!({"rule": name, "removed": removed}), text)?;
        Ok(if removed { Answer::Yes } else { Answer::No })
    }
}

fn pair(source: &str, target: &str) -> Result<String, CliError> {
    Pair::new(source, target)
        .map(|pair| pair.to_string())
        .map_err(|error| CliError::Input(error.to_string()))
}
