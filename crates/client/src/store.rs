//! Connections to the store, and its answers as plain values.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, RedisError, Value};

use crate::dial::redis_client;
use crate::error::{ClientError, StoreError};

/// Where the store is and how to reach it. Opens as many connections as are asked for.
#[derive(Clone)]
pub(crate) struct Store {
    client: redis::Client,
    at: String,
    connect_timeout: Duration,
    response_timeout: Duration,
}

impl Store {
    pub(crate) async fn new(
        url: &str,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Result<Store, ClientError> {
        let client = redis_client(url).await?;
        Ok(Store {
            at: place(client.get_connection_info().addr()),
            client,
            connect_timeout,
            response_timeout,
        })
    }

    /// Opens a connection whose answers may take as long as an ordinary command does.
    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection, StoreError> {
        self.open(self.response_timeout).await
    }

    /// Opens a connection for reads that wait up to `block` for something to arrive.
    pub(crate) async fn connect_to_wait(
        &self,
        block: Duration,
    ) -> Result<MultiplexedConnection, StoreError> {
        self.open(block.saturating_add(self.response_timeout)).await
    }

    async fn open(&self, response_timeout: Duration) -> Result<MultiplexedConnection, StoreError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(response_timeout));
        self.client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| self.error(&error))
    }

    /// The library's error in our words.
    pub(crate) fn error(&self, error: &RedisError) -> StoreError {
        let at = self.at.clone();
        if is_an_answer(error) {
            let refusals = error.clone().into_server_errors();
            let reason = match refusals.as_deref().and_then(|refusals| refusals.first()) {
                Some((_, refusal)) => format!(
                    "{} {}",
                    refusal.code(),
                    refusal.details().unwrap_or_default()
                )
                .trim()
                .to_owned(),
                None => error.category().to_owned(),
            };
            StoreError::Refused { at, reason }
        } else {
            StoreError::Unreachable {
                at,
                reason: error.to_string(),
            }
        }
    }

    pub(crate) fn unreachable(&self, reason: impl Into<String>) -> StoreError {
        StoreError::Unreachable {
            at: self.at.clone(),
            reason: reason.into(),
        }
    }
}

/// Whether the store itself said no, so that the connection is sound and nothing was done.
pub(crate) fn is_an_answer(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        redis::ErrorKind::Server(_)
            | redis::ErrorKind::Extension
            | redis::ErrorKind::AuthenticationFailed
    )
}

fn place(address: &ConnectionAddr) -> String {
    match address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            format!("{host}:{port}")
        }
        ConnectionAddr::Unix(path) => path.display().to_string(),
        _ => "its address".to_owned(),
    }
}

/// An entry of a stream as the store gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Raw {
    pub(crate) id: String,
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The entries of a one-stream `XREAD` or `XREADGROUP`, in order. What isn't shaped like an entry
/// is left out: an entry that was deleted meanwhile has no fields.
pub(crate) fn read_entries(value: Value) -> Vec<Raw> {
    let streams: Vec<Value> = match value {
        Value::Map(pairs) => pairs.into_iter().map(|(_, entries)| entries).collect(),
        Value::Array(items) => items
            .into_iter()
            .filter_map(|item| match item {
                Value::Array(pair) => pair.into_iter().nth(1),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    streams.into_iter().flat_map(entries).collect()
}

/// The entries of an `XRANGE`, of `XAUTOCLAIM`'s second part, or of one stream of `XREAD`.
pub(crate) fn entries(value: Value) -> Vec<Raw> {
    let Value::Array(items) = value else {
        return Vec::new();
    };
    items.into_iter().filter_map(entry).collect()
}

fn entry(value: Value) -> Option<Raw> {
    let Value::Array(parts) = value else {
        return None;
    };
    let mut parts = parts.into_iter();
    let id = String::from_utf8(bytes(parts.next()?)?).ok()?;
    let fields = match parts.next() {
        Some(Value::Array(flat)) => pairs(flat),
        Some(Value::Map(map)) => map
            .into_iter()
            .filter_map(|(k, v)| Some((bytes(k)?, bytes(v)?)))
            .collect(),
        _ => Vec::new(),
    };
    Some(Raw { id, fields })
}

fn pairs(flat: Vec<Value>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut fields = Vec::with_capacity(flat.len() / 2);
    let mut values = flat.into_iter();
    while let (Some(name), Some(value)) = (values.next(), values.next()) {
        if let (Some(name), Some(value)) = (bytes(name), bytes(value)) {
            fields.push((name, value));
        }
    }
    fields
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        Value::VerbatimString { text, .. } => Some(text.into_bytes()),
        _ => None,
    }
}
