//! Trimming what everybody has acknowledged: one script, on one key.

use redis::{Value, from_redis_value};

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
        let arguments = [group.to_owned(), keep.to_string(), most.to_string()];
        let answer = self.script(SCRIPT, stream, &arguments).await?;
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
