//! What stands on the store, read without the client.

use crossway_client::Client;
use crossway_harness::RedisServer;
pub(crate) use crossway_harness::store::{
    Fields, PATIENCE as SOON, add, entries, unified_stream as stream,
};
use redis::aio::MultiplexedConnection;

/// A client that is `site` in production.
pub(crate) async fn connect(server: &RedisServer, site: &str) -> Client {
    Client::connect(&server.url(), site, "production")
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
