//! The port, over a cluster.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crossway_core::entry::{Entry, EntryId, Fields};

use super::Cluster;
use super::links::{Call, Links};
use super::reader::ClusterReader;
use super::slot::slot;
use crate::streams::valkey::backoff::spread;
use crate::streams::valkey::dial::unreachable;
use crate::streams::valkey::encode::Outgoing;
use crate::streams::valkey::entries::entry_id;
use crate::streams::valkey::frame::{Frame, FrameBuilder};
use crate::streams::valkey::hash::{fields, once};
use crate::streams::valkey::{idle, trim};
use crate::streams::{
    GroupReader, HashChange, Health, Key, ReaderOptions, StoreError, Streams, Trimmed, glob,
};

/// What the port promises for a sign of life.
const HEALTH_DEADLINE: Duration = Duration::from_secs(1);
/// What the port promises for changes of a hash.
const MAX_ATTEMPTS: u32 = 100;
/// The longest pause before another attempt.
const LONGEST_PAUSE_US: u64 = 20_000;

impl Cluster {
    /// Carries out one call for each line, with a name for errors and the key it is about.
    async fn ask_all(
        &self,
        command: &'static str,
        lines: &[(&str, Vec<&[u8]>)],
        write: bool,
    ) -> Result<Vec<Frame>, StoreError> {
        let calls: Vec<Call> = lines
            .iter()
            .map(|(key, words)| {
                let mut out = Outgoing::default();
                out.line(words);
                Call {
                    slot: slot(key),
                    pieces: out.pieces(),
                }
            })
            .collect();
        let mut links = self.links();
        let answers = links.round(&calls, write, FrameBuilder::default).await;
        self.give_back(links);
        answers
            .into_iter()
            .zip(lines)
            .map(|(answer, (key, _))| match answer? {
                Frame::Error(text) => Err(refused(command, key, &text)),
                frame => Ok(frame),
            })
            .collect()
    }

    async fn ask(
        &self,
        command: &'static str,
        key: &str,
        words: Vec<&[u8]>,
        write: bool,
    ) -> Result<Frame, StoreError> {
        let mut answers = self.ask_all(command, &[(key, words)], write).await?;
        answers
            .pop()
            .ok_or_else(|| unreachable(&self.nodes.at, "no answer"))
    }

    fn nonsense(&self, reason: &str) -> StoreError {
        StoreError::Protocol {
            at: self.nodes.at.to_string(),
            reason: reason.to_owned(),
        }
    }

    async fn update(
        &self,
        links: &mut Links,
        key: &str,
        decide: &mut (dyn for<'a> FnMut(&'a HashMap<String, String>) -> Vec<HashChange> + Send),
    ) -> Result<Vec<HashChange>, StoreError> {
        for attempt in 0..MAX_ATTEMPTS {
            let map = links.map().await;
            let Some(master) = map.owner(slot(key)) else {
                self.maps.doubt();
                return Err(unreachable(&self.nodes.at, "no node has this key's slot"));
            };
            let mut link = links.take(&master.host).await?;
            match once(&mut link, key, decide).await {
                Ok(written) => {
                    let confirm = !self.nodes.confirm.is_zero() && master.followed;
                    if written.as_ref().is_some_and(|written| !written.is_empty()) && confirm {
                        let ms = self.nodes.confirm.as_millis().to_string();
                        link.must("WAIT", &[b"WAIT", b"1", ms.as_bytes()]).await?;
                    }
                    links.put_back(master.host.clone(), link);
                    if let Some(written) = written {
                        return Ok(written);
                    }
                }
                Err(StoreError::Refused { reason, .. })
                    if ["MOVED", "ASK", "TRYAGAIN"]
                        .iter()
                        .any(|word| reason.starts_with(word)) =>
                {
                    // The connection has a key watched, and isn't used again.
                    drop(self.maps.renewed().await);
                }
                Err(error) => return Err(error),
            }
            let longest = (100_u64 << attempt.min(10)).min(LONGEST_PAUSE_US);
            tokio::time::sleep(Duration::from_micros(spread() % longest)).await;
        }
        let reason =
            format!("it was changed by others during each of {MAX_ATTEMPTS} attempts; try again");
        Err(refused("EXEC", key, reason.as_bytes()))
    }

    async fn scan_node(
        &self,
        links: &mut Links,
        host: &crate::streams::valkey::url::Host,
        pattern: &str,
        found: &mut HashSet<String>,
    ) -> Result<(), StoreError> {
        let mut link = links.take(host).await?;
        let glob = glob(pattern);
        let mut cursor = b"0".to_vec();
        loop {
            let answer = link
                .must(
                    "SCAN",
                    &[
                        b"SCAN",
                        &cursor,
                        b"MATCH",
                        glob.as_bytes(),
                        b"COUNT",
                        b"1000",
                        b"TYPE",
                        b"stream",
                    ],
                )
                .await?;
            let [next, keys] = answer.elements() else {
                return Err(self.nonsense("a step of a scan isn't one"));
            };
            let names = keys.elements().iter().filter_map(|key| {
                // A name that isn't UTF-8 is nobody's stream.
                String::from_utf8(key.text()?.to_vec()).ok()
            });
            found.extend(names);
            cursor = next.text().unwrap_or(b"0").to_vec();
            if cursor == b"0" {
                links.put_back(host.clone(), link);
                return Ok(());
            }
        }
    }

    async fn look(&self) -> Result<(), StoreError> {
        let mut links = self.links();
        let map = links.map().await;
        if map.masters.is_empty() {
            return Err(unreachable(
                &self.nodes.at,
                "none of its nodes gave a map of its slots",
            ));
        }
        for master in &map.masters {
            let mut link = links.take(&master.host).await?;
            let info = link.must("CLUSTER INFO", &[b"CLUSTER", b"INFO"]).await?;
            let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
            if !info.contains("cluster_state:ok") {
                return Err(unreachable(
                    &self.nodes.at,
                    "the cluster says that it is down",
                ));
            }
            links.put_back(master.host.clone(), link);
        }
        self.give_back(links);
        Ok(())
    }
}

#[async_trait]
impl Streams for Cluster {
    fn reader(&self, options: ReaderOptions) -> Box<dyn GroupReader> {
        let links = Links::new(
            Arc::clone(&self.nodes),
            Arc::clone(&self.maps),
            format!("crossway-reader-{:016x}", spread()),
            Some(options.watched.clone()),
        );
        Box::new(ClusterReader::new(links, options))
    }

    fn is_atomic(&self) -> bool {
        false
    }

    async fn append(&self, stream: &str, fields: Fields) -> Result<EntryId, StoreError> {
        let mut words: Vec<&[u8]> = vec![b"XADD", stream.as_bytes(), b"*"];
        for (name, value) in &fields {
            words.extend([&name[..], &value[..]]);
        }
        let id = self.ask("XADD", stream, words, true).await?;
        id.text()
            .and_then(entry_id)
            .ok_or_else(|| self.nonsense("the id of an added entry isn't one"))
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
        let (from, count) = (from.to_string(), count.to_string());
        let words: Vec<&[u8]> = vec![
            b"XRANGE",
            stream.as_bytes(),
            from.as_bytes(),
            b"+",
            b"COUNT",
            count.as_bytes(),
        ];
        let answer = self.ask("XRANGE", stream, words, false).await?;
        answer
            .elements()
            .iter()
            .map(|entry| {
                let [id, texts] = entry.elements() else {
                    return Err(self.nonsense("an entry isn't one"));
                };
                let id = id
                    .text()
                    .and_then(entry_id)
                    .ok_or_else(|| self.nonsense("an entry's id can't be read"))?;
                let mut fields = Fields::with_capacity(texts.elements().len() / 2);
                for pair in texts.elements().chunks_exact(2) {
                    if let [Frame::Text(name), Frame::Text(value)] = pair {
                        fields.push(name.clone(), value.clone());
                    }
                }
                Ok(Entry { id, fields })
            })
            .collect()
    }

    async fn hash_all(&self, key: &str) -> Result<HashMap<String, String>, StoreError> {
        let words: Vec<&[u8]> = vec![b"HGETALL", key.as_bytes()];
        Ok(fields(&self.ask("HGETALL", key, words, false).await?))
    }

    async fn hash_get(&self, key: &str, field: &str) -> Result<Option<String>, StoreError> {
        let words: Vec<&[u8]> = vec![b"HGET", key.as_bytes(), field.as_bytes()];
        let value = self.ask("HGET", key, words, false).await?;
        Ok(value
            .text()
            .map(|value| String::from_utf8_lossy(value).into_owned()))
    }

    async fn hash_update(
        &self,
        key: &str,
        decide: &mut (dyn for<'a> FnMut(&'a HashMap<String, String>) -> Vec<HashChange> + Send),
    ) -> Result<Vec<HashChange>, StoreError> {
        let mut links = self.links();
        let written = self.update(&mut links, key, decide).await;
        self.give_back(links);
        written
    }

    async fn hash_add(&self, key: &str, field: &str, value: &str) -> Result<bool, StoreError> {
        let words: Vec<&[u8]> = vec![
            b"HSETNX",
            key.as_bytes(),
            field.as_bytes(),
            value.as_bytes(),
        ];
        Ok(self.ask("HSETNX", key, words, true).await? == Frame::Integer(1))
    }

    async fn hash_set(&self, key: &str, field: &str, value: &str) -> Result<(), StoreError> {
        let words: Vec<&[u8]> = vec![b"HSET", key.as_bytes(), field.as_bytes(), value.as_bytes()];
        self.ask("HSET", key, words, true).await.map(drop)
    }

    async fn hash_remove(&self, key: &str, field: &str) -> Result<bool, StoreError> {
        let words: Vec<&[u8]> = vec![b"HDEL", key.as_bytes(), field.as_bytes()];
        Ok(self.ask("HDEL", key, words, true).await? == Frame::Integer(1))
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        // `MGET` of one key: another kind of key is nothing, not an error.
        let lines: Vec<(&str, Vec<&[u8]>)> = keys
            .iter()
            .map(|key| (&**key, vec![&b"MGET"[..], key.as_bytes()]))
            .collect();
        let answers = self.ask_all("MGET", &lines, false).await?;
        Ok(answers
            .into_iter()
            .map(|answer| match answer.elements() {
                [Frame::Text(value)] => Some(value.clone()),
                _ => None,
            })
            .collect())
    }

    async fn exist(&self, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        let lines: Vec<(&str, Vec<&[u8]>)> = keys
            .iter()
            .map(|key| (&**key, vec![&b"EXISTS"[..], key.as_bytes()]))
            .collect();
        let answers = self.ask_all("EXISTS", &lines, false).await?;
        Ok(answers
            .into_iter()
            .map(|answer| answer == Frame::Integer(1))
            .collect())
    }

    async fn trim(&self, stream: &str, keep: u64) -> Result<(), StoreError> {
        let keep = keep.to_string();
        let words: Vec<&[u8]> = vec![
            b"XTRIM",
            stream.as_bytes(),
            b"MAXLEN",
            b"~",
            keep.as_bytes(),
        ];
        self.ask("XTRIM", stream, words, false).await.map(drop)
    }

    async fn trim_acknowledged(
        &self,
        stream: &str,
        group: &str,
        keep: u64,
        most: u64,
    ) -> Result<Trimmed, StoreError> {
        let (keep, most) = (keep.to_string(), most.to_string());
        let words: Vec<&[u8]> = vec![
            b"EVAL",
            trim::SCRIPT.as_bytes(),
            b"1",
            stream.as_bytes(),
            group.as_bytes(),
            keep.as_bytes(),
            most.as_bytes(),
        ];
        let answer = self.ask("EVAL", stream, words, false).await?;
        let [
            Frame::Integer(removed),
            Frame::Integer(beyond),
            Frame::Text(slowest),
        ] = answer.elements()
        else {
            return Err(self.nonsense("what became of a trimming can't be read"));
        };
        Ok(Trimmed {
            removed: u64::try_from(*removed).unwrap_or_default(),
            beyond: u64::try_from(*beyond).unwrap_or_default(),
            slowest: String::from_utf8_lossy(slowest).into_owned(),
        })
    }

    async fn make_group(&self, stream: &str, group: &str) -> Result<bool, StoreError> {
        let words: Vec<&[u8]> = vec![
            b"XGROUP",
            b"CREATE",
            stream.as_bytes(),
            group.as_bytes(),
            b"0",
            b"MKSTREAM",
        ];
        match self.ask("XGROUP CREATE", stream, words, true).await {
            Err(StoreError::Refused { reason, .. }) if reason.starts_with("BUSYGROUP") => Ok(false),
            answer => answer.map(|_| true),
        }
    }

    async fn delete(&self, key: &str) -> Result<bool, StoreError> {
        let words: Vec<&[u8]> = vec![b"DEL", key.as_bytes()];
        Ok(self.ask("DEL", key, words, true).await? == Frame::Integer(1))
    }

    async fn delete_idle(
        &self,
        stream: &str,
        idle: Duration,
    ) -> Result<Option<Duration>, StoreError> {
        let seconds = idle::argument(idle);
        let (script, key) = (idle::SCRIPT.as_bytes(), stream.as_bytes());
        let words: Vec<&[u8]> = vec![b"EVAL", script, b"1", key, seconds.as_bytes()];
        match self.ask("EVAL", stream, words, true).await? {
            Frame::Null => Ok(None),
            Frame::Integer(seconds) => Ok(Some(Duration::from_secs(
                u64::try_from(seconds).unwrap_or_default(),
            ))),
            _ => Err(self.nonsense("how long a stream hasn't been used can't be read")),
        }
    }

    async fn set_members(&self, key: &str) -> Result<Vec<String>, StoreError> {
        let words: Vec<&[u8]> = vec![b"SMEMBERS", key.as_bytes()];
        let answer = self.ask("SMEMBERS", key, words, false).await?;
        Ok(answer
            .elements()
            .iter()
            .filter_map(|member| String::from_utf8(member.text()?.to_vec()).ok())
            .collect())
    }

    async fn set_add(&self, key: &str, member: &str) -> Result<bool, StoreError> {
        let words: Vec<&[u8]> = vec![b"SADD", key.as_bytes(), member.as_bytes()];
        Ok(self.ask("SADD", key, words, true).await? == Frame::Integer(1))
    }

    async fn set_remove(&self, key: &str, member: &str) -> Result<bool, StoreError> {
        let words: Vec<&[u8]> = vec![b"SREM", key.as_bytes(), member.as_bytes()];
        Ok(self.ask("SREM", key, words, true).await? == Frame::Integer(1))
    }

    async fn set_access(&self, user: &str, _rules: &[String]) -> Result<bool, StoreError> {
        // Each node has users of its own, and one that joins or is promoted wouldn't have these rules.
        let reason = "ERR access isn't managed on a cluster; set the rules on each of its nodes";
        Err(refused("ACL SETUSER", user, reason.as_bytes()))
    }

    async fn scan(&self, pattern: &str) -> Result<Vec<String>, StoreError> {
        let mut links = self.links();
        let mut found = HashSet::new();
        for master in &links.map().await.masters {
            self.scan_node(&mut links, &master.host, pattern, &mut found)
                .await?;
        }
        self.give_back(links);
        Ok(found.into_iter().collect())
    }

    fn created(&self) -> Option<tokio::sync::broadcast::Receiver<Key>> {
        None
    }

    async fn health(&self) -> Health {
        match tokio::time::timeout(HEALTH_DEADLINE, self.look()).await {
            Ok(Ok(())) => Health::Up,
            Ok(Err(error)) => Health::Down(error.to_string()),
            Err(_) => Health::Down(format!(
                "the cluster at {} didn't answer within {HEALTH_DEADLINE:?}",
                self.nodes.at
            )),
        }
    }
}

fn refused(command: &'static str, key: &str, text: &[u8]) -> StoreError {
    StoreError::Refused {
        command,
        key: key.to_owned(),
        reason: String::from_utf8_lossy(text).into_owned(),
    }
}
