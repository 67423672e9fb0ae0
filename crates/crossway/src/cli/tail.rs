//! `crossway tail [SITE…]`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use clap::Args;
use crossway_core::address::{Environment, SiteId};
use redis::Value;
use serde_json::{Map, json};

use super::output::Output;
use super::store::{Store, StoreError};
use super::{Answer, CliError, Common, known_environment};

/// How long one read waits.
const BLOCK: Duration = Duration::from_millis(500);
/// How often sites that appeared meanwhile are looked for.
const LOOK: Duration = Duration::from_secs(2);
/// Longer values are cut, in characters.
const SHOWN: usize = 120;

/// Whose streams to follow.
#[derive(Debug, Args)]
pub(super) struct Tail {
    /// The sites; all registered ones, also those that register later, where none is named.
    sites: Vec<String>,
    /// The environment.
    #[arg(long, default_value = "production")]
    env: String,
    /// Show values whole.
    #[arg(long)]
    full: bool,
    /// Begin with what the streams hold already.
    #[arg(long)]
    from_start: bool,
    /// End after this many entries.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// One entry as it was read.
struct Seen {
    stream: String,
    id: String,
    fields: Vec<(String, String)>,
}

impl Tail {
    pub(super) async fn run(self, common: &Common, output: Output) -> Result<Answer, CliError> {
        let mut named = Vec::new();
        for name in &self.sites {
            let site = SiteId::parse_spelled(name);
            named.push(site.map_err(|error| CliError::Input(format!("site {name:?}: {error}")))?);
        }
        let mut store = Store::open(common, BLOCK).await?;
        let environment = known_environment(&store.keys, &self.env)?.clone();
        // Where to read on, for each stream.
        let mut places: BTreeMap<String, String> = BTreeMap::new();
        let mut looked: Option<Instant> = None;
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 {
            if looked.is_none_or(|at| named.is_empty() && at.elapsed() >= LOOK) {
                let from_start = self.from_start || looked.is_some();
                follow(&mut store, &named, &environment, from_start, &mut places).await?;
                looked = Some(Instant::now());
            }
            if places.is_empty() {
                tokio::time::sleep(BLOCK).await;
                continue;
            }
            for seen in read(&mut store, &places).await? {
                places.insert(seen.stream.clone(), seen.id.clone());
                if left == 0 {
                    break;
                }
                left -= 1;
                self.show(&seen, output)?;
            }
        }
        Ok(Answer::Yes)
    }

    fn show(&self, seen: &Seen, output: Output) -> Result<(), CliError> {
        let value = |text: &str| {
            if self.full {
                text.to_owned()
            } else {
                shortened(text)
            }
        };
        if output.is_json() {
            let fields: Map<String, serde_json::Value> = seen
                .fields
                .iter()
                .map(|(name, text)| (name.clone(), json!(value(text))))
                .collect();
            output.answer(
                &json!({"stream": seen.stream, "id": seen.id, "fields": fields}),
                "",
            )?;
        } else {
            // Control characters would let a value draw on the operator's terminal.
            let fields: Vec<String> = seen
                .fields
                .iter()
                .map(|(name, text)| {
                    format!("{}={}", name.escape_debug(), value(text).escape_debug())
                })
                .collect();
            output.answer(
                &json!(null),
                format!("{} {} {}", seen.stream, seen.id, fields.join(" ")),
            )?;
        }
        Ok(())
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Adds the streams that aren't followed yet, in both spellings.
async fn follow(
    store: &mut Store,
    named: &[SiteId],
    environment: &Environment,
    from_start: bool,
    places: &mut BTreeMap<String, String>,
) -> Result<(), StoreError> {
    let registered: BTreeSet<SiteId> = match named {
        [] => {
            let sites = store.hash(&store.keys.sites().clone()).await?;
            sites
                .keys()
                .filter_map(|name| SiteId::parse(name).ok())
                .collect()
        }
        named => named.iter().cloned().collect(),
    };
    for site in registered {
        let spellings = [
            store.keys.unified(&site, environment),
            store.keys.unified_other(&site, environment),
        ];
        for stream in spellings {
            let key = stream.key.to_string();
            if places.contains_key(&key) {
                continue;
            }
            let last = if from_start {
                None
            } else {
                last_id(store, &key).await?
            };
            places.insert(key, last.unwrap_or_else(|| "0-0".to_owned()));
        }
    }
    Ok(())
}

async fn last_id(store: &mut Store, key: &str) -> Result<Option<String>, StoreError> {
    let command = redis::cmd("XREVRANGE")
        .arg(key)
        .arg("+")
        .arg("-")
        .arg("COUNT")
        .arg(1)
        .take();
    Ok(entries(key, store.run(&command).await?)
        .into_iter()
        .next()
        .map(|seen| seen.id))
}

async fn read(
    store: &mut Store,
    places: &BTreeMap<String, String>,
) -> Result<Vec<Seen>, StoreError> {
    let mut command = redis::cmd("XREAD");
    command
        .arg("COUNT")
        .arg(100)
        .arg("BLOCK")
        .arg(BLOCK.as_millis() as u64)
        .arg("STREAMS");
    for key in places.keys() {
        command.arg(key);
    }
    for id in places.values() {
        command.arg(id);
    }
    let streams: Vec<(Value, Value)> = match store.run(&command).await? {
        Value::Map(pairs) => pairs,
        Value::Array(items) => items.into_iter().filter_map(two).collect(),
        _ => Vec::new(),
    };
    let mut seen: Vec<Seen> = streams
        .into_iter()
        .filter_map(|(key, list)| Some(entries(&text(&key)?, list)))
        .flatten()
        .collect();
    // Several streams at once are shown in the order that the store gave out ids.
    seen.sort_by_key(|seen| order(&seen.id));
    Ok(seen)
}

fn order(id: &str) -> (u64, u64) {
    let (ms, seq) = id.split_once('-').unwrap_or((id, "0"));
    (
        ms.parse().unwrap_or_default(),
        seq.parse().unwrap_or_default(),
    )
}

fn two(value: Value) -> Option<(Value, Value)> {
    let Value::Array(parts) = value else {
        return None;
    };
    let mut parts = parts.into_iter();
    Some((parts.next()?, parts.next()?))
}

fn entries(stream: &str, list: Value) -> Vec<Seen> {
    let Value::Array(items) = list else {
        return Vec::new();
    };
    items
        .into_iter()
        .filter_map(two)
        .filter_map(|(id, fields)| {
            let fields: Vec<(String, String)> = match fields {
                Value::Array(flat) => flat
                    .chunks_exact(2)
                    .filter_map(|pair| Some((text(pair.first()?)?, text(pair.get(1)?)?)))
                    .collect(),
                Value::Map(map) => map
                    .iter()
                    .filter_map(|(k, v)| Some((text(k)?, text(v)?)))
                    .collect(),
                _ => Vec::new(),
            };
            Some(Seen {
                stream: stream.to_owned(),
                id: text(&id)?,
                fields,
            })
        })
        .collect()
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}
