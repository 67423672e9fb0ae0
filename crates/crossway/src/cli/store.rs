//! The command line's connection to the store.

use std::collections::BTreeMap;
use std::time::Duration;

use crossway_client::redis_client;
use crossway_core::address::Keyspace;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisError, Value};

use super::{CliError, Common};
use crate::config::{Config, StoreUrl};

/// How long the store may take for anything but a waiting read.
const PATIENCE: Duration = Duration::from_secs(5);

/// The store didn't do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("the store at {at}: {reason}; check that it runs, and --url or relay.store")]
pub(super) struct StoreError {
    at: String,
    reason: String,
}

/// A store, its configuration, and the names of its keys.
pub(super) struct Store {
    pub(super) config: Config,
    pub(super) keys: Keyspace,
    at: String,
    connection: MultiplexedConnection,
}

impl Store {
    /// Connects to the store that the options name. Reads may wait for `block`.
    pub(super) async fn open(common: &Common, block: Duration) -> Result<Store, CliError> {
        let config = common.configuration()?;
        let url = common.store_url(&config)?;
        Store::connect(config, &url, block).await
    }

    /// Connects to the store at a URL, with the names of keys that a configuration gives.
    pub(super) async fn connect(
        config: Config,
        url: &StoreUrl,
        block: Duration,
    ) -> Result<Store, CliError> {
        let keys = config
            .relay
            .keyspace()
            .map_err(|error| CliError::Input(error.to_string()))?;
        let connection = connect(url, block).await.map_err(|reason| StoreError {
            at: url.place().to_owned(),
            reason,
        })?;
        Ok(Store {
            config,
            keys,
            at: url.place().to_owned(),
            connection,
        })
    }

    /// Runs one command.
    pub(super) async fn run(&mut self, command: &redis::Cmd) -> Result<Value, StoreError> {
        command
            .query_async(&mut self.connection)
            .await
            .map_err(|error| failed(&self.at, &error))
    }

    /// Runs several commands in one go.
    pub(super) async fn run_all(&mut self, commands: &redis::Pipeline) -> Result<(), StoreError> {
        let answers: Result<Vec<Value>, RedisError> =
            commands.query_async(&mut self.connection).await;
        answers.map(drop).map_err(|error| failed(&self.at, &error))
    }

    /// All fields of a hash, in order.
    pub(super) async fn hash(&mut self, key: &str) -> Result<BTreeMap<String, String>, StoreError> {
        let command = redis::cmd("HGETALL").arg(key).take();
        let fields: Result<BTreeMap<Vec<u8>, Vec<u8>>, RedisError> =
            command.query_async(&mut self.connection).await;
        let readable = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        match fields {
            Ok(fields) => Ok(fields
                .into_iter()
                .map(|(name, value)| (readable(name), readable(value)))
                .collect()),
            Err(error) => Err(failed(&self.at, &error)),
        }
    }

    /// Whether a field of a hash is there.
    pub(super) async fn hash_has(&mut self, key: &str, field: &str) -> Result<bool, StoreError> {
        Ok(self.run(redis::cmd("HGET").arg(key).arg(field)).await? != Value::Nil)
    }

    /// Sets a field of a hash.
    pub(super) async fn hash_set(
        &mut self,
        key: &str,
        field: &str,
        value: &str,
    ) -> Result<(), StoreError> {
        self.run(redis::cmd("HSET").arg(key).arg(field).arg(value))
            .await
            .map(drop)
    }

    /// Removes fields of a hash, and tells whether any was there.
    pub(super) async fn hash_remove(
        &mut self,
        key: &str,
        fields: &[String],
    ) -> Result<bool, StoreError> {
        let removed = self.run(redis::cmd("HDEL").arg(key).arg(fields)).await?;
        Ok(!matches!(removed, Value::Int(0)))
    }
}

async fn connect(url: &StoreUrl, block: Duration) -> Result<MultiplexedConnection, String> {
    let client = redis_client(url.expose())
        .await
        .map_err(|error| error.to_string())?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE.saturating_add(block)));
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .map_err(|error| error.to_string())
}

fn failed(at: &str, error: &RedisError) -> StoreError {
    StoreError {
        at: at.to_owned(),
        reason: error.to_string(),
    }
}
