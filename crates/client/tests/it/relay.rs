//! The least of a daemon: carries commands between the named sites and brings replies home. It
//! keeps no promise that a daemon keeps; it only speaks its words.

use std::collections::HashMap;

use crossway_harness::RedisServer;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use crate::store::{Fields, stream};

/// Ends when it is dropped.
pub(crate) struct Relay {
    _task: AbortOnDropHandle<()>,
}

impl Relay {
    pub(crate) async fn start(server: &RedisServer, sites: &[&str]) -> Relay {
        let connection = server.client().await;
        let sites: Vec<String> = sites.iter().map(|site| (*site).to_owned()).collect();
        let task: JoinHandle<()> = tokio::spawn(run(connection, sites));
        Relay {
            _task: AbortOnDropHandle::new(task),
        }
    }
}

async fn run(mut connection: MultiplexedConnection, sites: Vec<String>) {
    let mut last: HashMap<String, String> = sites
        .iter()
        .map(|site| (site.clone(), "0-0".to_owned()))
        .collect();
    // Delivery id to who asked and by which id.
    let mut awaited: HashMap<String, (String, String)> = HashMap::new();
    loop {
        let mut any = false;
        for site in &sites {
            let from = format!("({}", last[site]);
            let found: Vec<(String, Fields)> = redis::cmd("XRANGE")
                .arg(stream(site))
                .arg(from)
                .arg("+")
                .query_async(&mut connection)
                .await
                .unwrap_or_default();
            for (id, fields) in found {
                any = true;
                cross(&mut connection, &sites, &mut awaited, site, &id, &fields).await;
                last.insert(site.clone(), id);
            }
        }
        if !any {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }
}

async fn cross(
    connection: &mut MultiplexedConnection,
    sites: &[String],
    awaited: &mut HashMap<String, (String, String)>,
    site: &str,
    id: &str,
    fields: &Fields,
) {
    if let Some(target) = fields.get("_rt") {
        let asked = fields["i"].as_str();
        if !sites.contains(target) {
            let refusal = [
                ("t", "r"),
                ("st", "error"),
                ("ri", asked),
                ("_ec", "RELAY.TARGET_NOT_FOUND"),
                ("e", "no such site"),
                ("ss", "gnode"),
            ];
            write(connection, site, &refusal).await;
            return;
        }
        let delivery = format!("delivery-{site}-{id}");
        let mut forwarded: Vec<(&str, &str)> = fields
            .iter()
            .filter(|(name, _)| !["_rt", "i"].contains(&name.as_str()))
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        forwarded.push(("i", &delivery));
        write(connection, target, &forwarded).await;
        let acknowledgement = [
            ("t", "r"),
            ("st", "ok"),
            ("ri", asked),
            ("r", r#"{"relayed":true}"#),
            ("ss", "gnode"),
        ];
        write(connection, site, &acknowledgement).await;
        awaited.insert(delivery, (site.to_owned(), asked.to_owned()));
    } else if fields.get("t").is_some_and(|t| t == "r")
        && let Some((source, asked)) = fields.get("ri").and_then(|ri| awaited.remove(ri))
    {
        let carried: Vec<(&str, &str)> = fields
            .iter()
            .map(|(name, value)| {
                (
                    name.as_str(),
                    if name == "ri" {
                        asked.as_str()
                    } else {
                        value.as_str()
                    },
                )
            })
            .collect();
        write(connection, &source, &carried).await;
    }
}

async fn write(connection: &mut MultiplexedConnection, site: &str, fields: &[(&str, &str)]) {
    let _: Result<String, _> = redis::cmd("XADD")
        .arg(stream(site))
        .arg("*")
        .arg(fields)
        .query_async(connection)
        .await;
}
