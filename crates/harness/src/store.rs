//! What stands on a store, read and written without anything of ours.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;

use crate::eventually;

/// How long anything may take before a test gives up on it: long enough that only a fault
/// reaches it.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The fields of an entry.
pub type Fields = HashMap<String, String>;

/// A site's stream in production.
#[must_use]
pub fn unified_stream(site: &str) -> String {
    format!("{site}:gnode:unified:production")
}

/// A connection for a test's own commands.
pub async fn connect(url: &str) -> MultiplexedConnection {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    redis::Client::open(url)
        .expect("the URL is well-formed")
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .expect("the store accepts a connection")
}

/// Appends an entry and gives its id.
pub async fn add(
    connection: &mut MultiplexedConnection,
    stream: &str,
    fields: &[(&str, &str)],
) -> String {
    redis::cmd("XADD")
        .arg(stream)
        .arg("*")
        .arg(fields)
        .query_async(connection)
        .await
        .expect("an entry is appended")
}

/// All entries of a stream with their ids, in order.
pub async fn entries(
    connection: &mut MultiplexedConnection,
    stream: &str,
) -> Vec<(String, Fields)> {
    redis::cmd("XRANGE")
        .arg(stream)
        .arg("-")
        .arg("+")
        .query_async(connection)
        .await
        .expect("a stream")
}

/// Waits for an entry of a stream that has these fields.
pub async fn entry_with(
    connection: &mut MultiplexedConnection,
    stream: &str,
    wanted: &[(&str, &str)],
) -> Fields {
    let what = format!("an entry of {stream} with {wanted:?}");
    eventually(PATIENCE, &what, async || {
        let all = entries(connection, stream).await.into_iter();
        all.map(|(_, fields)| fields).find(|fields| {
            wanted
                .iter()
                .all(|(name, value)| fields.get(*name).is_some_and(|given| given == value))
        })
    })
    .await
}

/// Waits until a site is registered.
pub async fn registered(connection: &mut MultiplexedConnection, site: &str) {
    eventually(PATIENCE, &format!("{site} to be registered"), async || {
        let known: Option<String> = redis::cmd("HGET")
            .arg("gnode:gnode:sites")
            .arg(site)
            .query_async(connection)
            .await
            .expect("the sites are a hash");
        known.map(|_| ())
    })
    .await;
}
