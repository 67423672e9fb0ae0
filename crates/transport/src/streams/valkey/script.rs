//! Scripts about one key, known to the store by their digest.

use redis::{Script, Value};

use super::Valkey;
use crate::streams::StoreError;

impl Valkey {
    /// Runs a script on a key; gives it to the store where that doesn't know it.
    pub(super) async fn script(
        &self,
        script: &str,
        key: &str,
        arguments: &[String],
    ) -> Result<Value, StoreError> {
        let mut call = redis::cmd("EVALSHA");
        call.arg(Script::new(script).get_hash()).arg(1).arg(key);
        for argument in arguments {
            call.arg(argument);
        }
        match self.cold.run("EVALSHA", key, &call).await {
            Err(StoreError::Refused { reason, .. }) if reason.starts_with("NOSCRIPT") => {
                let load = redis::cmd("SCRIPT").arg("LOAD").arg(script).take();
                self.cold.run("SCRIPT LOAD", key, &load).await?;
                self.cold.run("EVALSHA", key, &call).await
            }
            answer => answer,
        }
    }
}
