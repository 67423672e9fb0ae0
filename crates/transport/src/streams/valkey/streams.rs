//! The port, over one server.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crossway_core::entry::{Entry, EntryId, Fields};
use redis::{Cmd, FromRedisValue, Value, cmd};

use super::Valkey;
use super::cold::protocol;
use super::entries::entry_id;
use super::idle;
use super::reader::ValkeyReader;
use crate::streams::{
    GroupReader, HashChange, Health, Key, ReaderOptions, StoreError, Streams, Trimmed, glob,
};

/// Keys asked about at once.
const KEYS_AT_ONCE: usize = 1000;
/// Keys the store looks at in one step of a scan.
const SCAN_STEP: usize = 1000;
/// What the port promises for a sign of life.
const HEALTH_DEADLINE: Duration = Duration::from_secs(1);

impl Valkey {
    async fn ask<T: FromRedisValue>(
        &self,
        command: &'static str,
        key: &str,
        cmd: &Cmd,
    ) -> Result<T, StoreError> {
        let value = self.cold.run(command, key, cmd).await?;
        self.read(value)
    }

    fn read<T: FromRedisValue>(&self, value: Value) -> Result<T, StoreError> {
        T::from_redis_value(value).map_err(|error| protocol(&self.dialer.at, &error.into()))
    }

    fn nonsense(&self, reason: &str) -> StoreError {
        StoreError::Protocol {
            at: self.dialer.at.to_string(),
            reason: reason.to_owned(),
        }
    }
}

#[async_trait]
impl Streams for Valkey {
    fn reader(&self, options: ReaderOptions) -> Box<dyn GroupReader> {
        Box::new(ValkeyReader::new(Arc::clone(&self.dialer), options))
    }

    async fn append(&self, stream: &str, fields: Fields) -> Result<EntryId, StoreError> {
        let mut add = cmd("XADD");
        add.arg(stream).arg("*");
        for (name, value) in &fields {
            add.arg(&name[..]).arg(&value[..]);
        }
        let id: Vec<u8> = self.ask("XADD", stream, &add).await?;
        entry_id(&id).ok_or_else(|| self.nonsense("the id of an added entry isn't one"))
    }

    async fn range(
        &self,
        stream: &str,
        from: EntryId,
        count: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let range = cmd("XRANGE")
            .arg(stream)
            .arg(from.to_string())
            .arg("+")
            .arg("COUNT")
            .arg(count)
            .take();
        let entries: Vec<(Vec<u8>, Vec<Vec<u8>>)> = self.ask("XRANGE", stream, &range).await?;
        entries
            .into_iter()
            .map(|(id, texts)| {
                let id =
                    entry_id(&id).ok_or_else(|| self.nonsense("an entry's id can't be read"))?;
                let mut fields = Fields::with_capacity(texts.len() / 2);
                let mut texts = texts.into_iter();
                while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
                    fields.push(name, value);
                }
                Ok(Entry { id, fields })
            })
            .collect()
    }

    async fn hash_all(&self, key: &str) -> Result<HashMap<String, String>, StoreError> {
        let pairs: Vec<(Vec<u8>, Vec<u8>)> =
            self.ask("HGETALL", key, cmd("HGETALL").arg(key)).await?;
        Ok(pairs
            .into_iter()
            .map(|(field, value)| (lossy(&field), lossy(&value)))
            .collect())
    }

    async fn hash_get(&self, key: &str, field: &str) -> Result<Option<String>, StoreError> {
        let value: Option<Vec<u8>> = self
            .ask("HGET", key, cmd("HGET").arg(key).arg(field))
            .await?;
        Ok(value.map(|value| lossy(&value)))
    }

    async fn hash_update(
        &self,
        key: &str,
        decide: &mut (dyn for<'a> FnMut(&'a HashMap<String, String>) -> Vec<HashChange> + Send),
    ) -> Result<Vec<HashChange>, StoreError> {
        self.updates.update(key, decide).await
    }

    async fn hash_add(&self, key: &str, field: &str, value: &str) -> Result<bool, StoreError> {
        self.ask("HSETNX", key, cmd("HSETNX").arg(key).arg(field).arg(value))
            .await
    }

    async fn hash_set(&self, key: &str, field: &str, value: &str) -> Result<(), StoreError> {
        self.cold
            .run("HSET", key, cmd("HSET").arg(key).arg(field).arg(value))
            .await
            .map(|_| ())
    }

    async fn hash_remove(&self, key: &str, field: &str) -> Result<bool, StoreError> {
        self.ask("HDEL", key, cmd("HDEL").arg(key).arg(field)).await
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_AT_ONCE) {
            let mut get = cmd("MGET");
            for key in keys {
                get.arg(&**key);
            }
            let some: Vec<Option<Vec<u8>>> = self
                .ask("MGET", keys.first().map_or("", |key| key), &get)
                .await?;
            values.extend(some.into_iter().map(|value| value.map(Bytes::from)));
        }
        Ok(values)
    }

    async fn exist(&self, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        let mut answers = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_AT_ONCE) {
            let mut several = redis::pipe();
            for key in keys {
                several.cmd("EXISTS").arg(&**key);
            }
            let some = self
                .cold
                .run_all("EXISTS", keys.first().map_or("", |key| key), &several)
                .await?;
            for value in some {
                answers.push(self.read(value)?);
            }
        }
        Ok(answers)
    }

    async fn trim(&self, stream: &str, keep: u64) -> Result<(), StoreError> {
        let trim = cmd("XTRIM")
            .arg(stream)
            .arg("MAXLEN")
            .arg("~")
            .arg(keep)
            .take();
        self.cold.run("XTRIM", stream, &trim).await.map(|_| ())
    }

    async fn trim_acknowledged(
        &self,
        stream: &str,
        group: &str,
        keep: u64,
        most: u64,
    ) -> Result<Trimmed, StoreError> {
        self.trim_by_script(stream, group, keep, most).await
    }

    async fn make_group(&self, stream: &str, group: &str) -> Result<bool, StoreError> {
        let make = cmd("XGROUP")
            .arg("CREATE")
            .arg(stream)
            .arg(group)
            .arg(0)
            .arg("MKSTREAM")
            .take();
        match self.cold.run("XGROUP CREATE", stream, &make).await {
            Err(StoreError::Refused { reason, .. }) if reason.starts_with("BUSYGROUP") => Ok(false),
            answer => answer.map(|_| true),
        }
    }

    async fn delete(&self, key: &str) -> Result<bool, StoreError> {
        self.ask("DEL", key, cmd("DEL").arg(key)).await
    }

    async fn delete_idle(
        &self,
        stream: &str,
        idle: Duration,
    ) -> Result<Option<Duration>, StoreError> {
        let arguments = [idle::argument(idle)];
        let answer = self.script(idle::SCRIPT, stream, &arguments).await?;
        let seconds: Option<u64> = self.read(answer)?;
        Ok(seconds.map(Duration::from_secs))
    }

    async fn set_members(&self, key: &str) -> Result<Vec<String>, StoreError> {
        let members: Vec<Vec<u8>> = self.ask("SMEMBERS", key, cmd("SMEMBERS").arg(key)).await?;
        Ok(members
            .into_iter()
            .filter_map(|member| String::from_utf8(member).ok())
            .collect())
    }

    async fn set_add(&self, key: &str, member: &str) -> Result<bool, StoreError> {
        self.ask("SADD", key, cmd("SADD").arg(key).arg(member))
            .await
    }

    async fn set_remove(&self, key: &str, member: &str) -> Result<bool, StoreError> {
        self.ask("SREM", key, cmd("SREM").arg(key).arg(member))
            .await
    }

    async fn set_access(&self, user: &str, rules: &[String]) -> Result<bool, StoreError> {
        let get = cmd("ACL").arg("GETUSER").arg(user).take();
        if self.cold.run("ACL GETUSER", user, &get).await? == Value::Nil {
            return Ok(false);
        }
        let mut set = cmd("ACL");
        set.arg("SETUSER").arg(user);
        for rule in rules {
            set.arg(rule);
        }
        self.cold.run("ACL SETUSER", user, &set).await.map(|_| true)
    }

    async fn scan(&self, pattern: &str) -> Result<Vec<String>, StoreError> {
        let glob = glob(pattern);
        let mut found = HashSet::new();
        let mut cursor = b"0".to_vec();
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(&cursor)
                .arg("MATCH")
                .arg(&glob)
                .arg("COUNT")
                .arg(SCAN_STEP)
                .arg("TYPE")
                .arg("stream");
            let (next, keys): (Vec<u8>, Vec<Vec<u8>>) = self.ask("SCAN", pattern, &scan).await?;
            // A name that isn't UTF-8 is nobody's stream.
            found.extend(
                keys.into_iter()
                    .filter_map(|key| String::from_utf8(key).ok()),
            );
            if next == b"0" {
                return Ok(found.into_iter().collect());
            }
            cursor = next;
        }
    }

    fn created(&self) -> Option<tokio::sync::broadcast::Receiver<Key>> {
        None
    }

    async fn health(&self) -> Health {
        let ping = cmd("PING");
        match tokio::time::timeout(HEALTH_DEADLINE, self.cold.run("PING", "", &ping)).await {
            Ok(Ok(_)) => Health::Up,
            Ok(Err(error)) => Health::Down(error.to_string()),
            Err(_) => Health::Down(format!(
                "the store at {} didn't answer within {HEALTH_DEADLINE:?}",
                self.dialer.at
            )),
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
