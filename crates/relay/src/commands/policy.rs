//! The rules of who may send what to whom.

use crossway_core::policy::{Pair, Rule};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Commands, bad, parse};
use crate::directory::DirectoryError;

#[derive(Deserialize)]
struct PairParams {
    source: String,
    target: String,
}

#[derive(Deserialize)]
struct PolicyParams<'a> {
    source: String,
    target: String,
    #[serde(borrow)]
    policy: &'a RawValue,
}

impl Commands<'_> {
    pub(super) async fn policy_set(&self, params: &[u8]) -> Result<Value, DirectoryError> {
        let params: PolicyParams<'_> = parse(params)?;
        let pair = Pair::new(&params.source, &params.target)
            .map_err(|error| bad(&error))?
            .to_string();
        let rule = Rule::parse(&pair, params.policy.get()).map_err(|error| bad(&error))?;
        let key = self.directory.options().keyspace.policy();
        self.store
            .hash_set(&key, &pair, &crate::directory::to_json(&rule))
            .await?;
        // The answer says that the rule holds, so it must hold by then.
        self.directory.refresh().await?;
        Ok(json!({"rule": pair, "policy": rule}))
    }

    pub(super) async fn policy_list(&self) -> Result<Value, DirectoryError> {
        let rules = self
            .store
            .hash_all(&self.directory.options().keyspace.policy())
            .await?;
        let mut rules: Vec<(String, String)> = rules.into_iter().collect();
        rules.sort();
        let shown = |(pair, body): (String, String)| {
            let policy = serde_json::from_str::<Value>(&body).unwrap_or(Value::String(body));
            json!({"rule": pair, "policy": policy})
        };
        Ok(json!({"policies": rules.into_iter().map(shown).collect::<Vec<_>>()}))
    }

    pub(super) async fn policy_remove(&self, params: &[u8]) -> Result<Value, DirectoryError> {
        let params: PairParams = parse(params)?;
        let key = self.directory.options().keyspace.policy();
        // Whoever wrote it by hand may have spelled it otherwise than the daemon does.
        let pair = Pair::new(&params.source, &params.target).map_err(|error| bad(&error))?;
        let mut removed = false;
        for name in pair.spellings() {
            removed |= self.store.hash_remove(&key, &name).await?;
        }
        let pair = pair.to_string();
        self.directory.refresh().await?;
        Ok(json!({"rule": pair, "removed": removed}))
    }
}
