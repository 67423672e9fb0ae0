//! What stands on the store, read without the client.

use std::collections::HashMap;
use std::time::Duration;

use crossway_harness::RedisServer;
use redis::aio::MultiplexedConnection;

pub(crate) type Fields = HashMap<String, String>;

/// Long enough that only a fault reaches it.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) fn stream(site: &str) -> String {
    format!("{site}:gnode:unified:production")
}

pub(crate) async fn entries(
    connection: &mut MultiplexedConnection,
    stream: &str,
) -> Vec<(String, Fields)> {
    redis::cmd("XRANGE")
        .arg(stream)
        .arg("-")
        .arg("+")
        .query_async(connection)
        .await
        .unwrap()
}

pub(crate) async fn add(
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
        .unwrap()
}

/// Entries of a site's stream of this type.
pub(crate) async fn of_type(server: &RedisServer, site: &str, kind: &str) -> Vec<Fields> {
    let all = entries(&mut server.client().await, &stream(site)).await;
    all.into_iter()
        .map(|(_, fields)| fields)
        .filter(|fields| fields.get("t").is_some_and(|t| t == kind))
        .collect()
}

/// How many entries the group of this stream has read and not settled.
pub(crate) async fn pending(connection: &mut MultiplexedConnection, site: &str) -> usize {
    let list: Vec<redis::Value> = redis::cmd("XPENDING")
        .arg(stream(site))
        .arg("service")
        .arg("-")
        .arg("+")
        .arg(100)
        .query_async(connection)
        .await
        .unwrap();
    list.len()
}
