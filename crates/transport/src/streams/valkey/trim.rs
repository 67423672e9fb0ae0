//! Trimming what everybody has acknowledged: one script, on one key.

use redis::{Script, Value, from_redis_value};

use super::Valkey;
use super::cold::protocol;
use crate::streams::{StoreError, Trimmed};

pub(crate) const SCRIPT: &str = include_str!("trim.lua");

impl Valkey {
    pub(super) async fn trim_by_script(
        &self,
        stream: &str,
        group: &str,
        keep: u64,
        most: u64,
    ) -> Result<Trimmed, StoreError> {
        let script = Script::new(SCRIPT);
        let mut call = redis::cmd("EVALSHA");
        call.arg(script.get_hash()).arg(1).arg(stream);
        call.arg(group).arg(keep).arg(most);
        let answer = match self.cold.run("EVALSHA", stream, &call).await {
            Err(StoreError::Refused { reason, .. }) if reason.starts_with("NOSCRIPT") => {
                let load = redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).take();
                self.cold.run("SCRIPT LOAD", stream, &load).await?;
                self.cold.run("EVALSHA", stream, &call).await?
            }
            answer => answer?,
        };
        let read = |answer: Value| from_redis_value::<(u64, u64, Vec<u8>)>(answer);
        let (removed, beyond, slowest) =
            read(answer).map_err(|error| protocol(&self.dialer.at, &error.into()))?;
        Ok(Trimmed {
            removed,
            beyond,
            slowest: String::from_utf8_lossy(&slowest).into_owned(),
        })
    }
}
