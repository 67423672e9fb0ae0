//! A relay on a real store, and services that speak to it by nothing but their streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossway_core::address::{Environment, Keyspace, SiteId, Spelling};
use crossway_core::entry::{Entry, EntryId, Fields};
use crossway_harness::{RedisCluster, RedisServer, eventually};
use crossway_relay::{Relay, RelayOptions};
use crossway_transport::streams::Streams;
use crossway_transport::streams::cluster::Cluster;
use crossway_transport::streams::embedded::Embedded;
use crossway_transport::streams::valkey::Valkey;
use prometheus_client::registry::Registry;

/// How long anything may take before a test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct World {
    pub(crate) store: Arc<dyn Streams>,
    /// What the relay uses instead, where it isn't to be the same user.
    pub(crate) daemons_store: Option<Arc<dyn Streams>>,
    pub(crate) server: Option<RedisServer>,
    pub(crate) relay: Option<Relay>,
    pub(crate) metrics: Registry,
    sequence: AtomicU64,
}

pub(crate) fn keyspace() -> Keyspace {
    Keyspace::new("gnode", "gnode", Spelling::Bare, &[]).unwrap()
}

pub(crate) fn options(member: &str) -> RelayOptions {
    let mut options = RelayOptions::new(keyspace(), member, member);
    options
        .administrators
        .insert(SiteId::parse("admin").unwrap());
    options
}

impl World {
    pub(crate) async fn embedded() -> World {
        World::on(Embedded::in_memory(), None)
    }

    pub(crate) async fn valkey() -> World {
        let server = RedisServer::start().await;
        let store = connect(&server).await;
        World::on(store, Some(server))
    }

    pub(crate) async fn cluster(cluster: &RedisCluster) -> World {
        let url = cluster.url().parse().unwrap();
        World::on(Arc::new(Cluster::open(&url).await.unwrap()), None)
    }

    fn on(store: Arc<dyn Streams>, server: Option<RedisServer>) -> World {
        World {
            store,
            daemons_store: None,
            server,
            relay: None,
            metrics: Registry::default(),
            sequence: AtomicU64::new(1),
        }
    }

    /// Starts the relay; sites `a`, `b`, `c` and `admin` are registered in testing, `b` and `a` in staging too.
    pub(crate) async fn start(mut self) -> World {
        self.start_with(options("one")).await;
        for site in ["a", "b", "c", "admin"] {
            let environments: &[&str] = if site < "c" && site != "admin" {
                &["testing", "staging"]
            } else {
                &["testing"]
            };
            let body = serde_json::json!({"environments": environments, "metadata": {}, "registered_at": 1});
            self.store
                .hash_set(&keyspace().sites(), site, &body.to_string())
                .await
                .unwrap();
        }
        self
    }

    pub(crate) async fn start_with(&mut self, options: RelayOptions) {
        self.metrics = Registry::default();
        self.relay = Some(Relay::start(
            Arc::clone(self.daemons_store.as_ref().unwrap_or(&self.store)),
            options,
            &mut self.metrics,
        ));
    }

    pub(crate) async fn stop(&mut self) {
        if let Some(relay) = self.relay.take() {
            assert!(
                relay.stop(PATIENCE).await,
                "the relay stops within its deadline"
            );
        }
    }

    /// Writes an entry into a site's stream in testing.
    pub(crate) async fn write(&self, site: &str, fields: &[(&str, &str)]) -> EntryId {
        self.write_to(&stream(site), fields).await
    }

    pub(crate) async fn write_to(&self, key: &str, fields: &[(&str, &str)]) -> EntryId {
        let fields: Fields = fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        self.store.append(key, fields).await.unwrap()
    }

    /// Writes a command for the daemon itself into a site's stream in testing.
    pub(crate) async fn command(&self, site: &str, id: &str, command: &str, params: &str) {
        let fields = [("t", "c"), ("i", id), ("c", command), ("p", params)];
        self.write(site, &fields).await;
    }

    /// Writes an answer to a delivery id into a site's stream in testing.
    pub(crate) async fn reply(&self, site: &str, delivery: &str, result: &str) {
        let fields = [("t", "r"), ("ri", delivery), ("r", result)];
        self.write(site, &fields).await;
    }

    /// Sets a rule, as an operator does on the store.
    pub(crate) async fn rule(&self, pair: &str, body: &str) {
        let policy = keyspace().policy();
        self.store.hash_set(&policy, pair, body).await.unwrap();
    }

    /// Sends a command from one site to a target, and gives its request id.
    pub(crate) async fn send(&self, from: &str, target: &str, command: &str) -> String {
        let id = format!("req-{}", self.sequence.fetch_add(1, Ordering::Relaxed));
        self.write(
            from,
            &[
                ("t", "c"),
                ("i", &id),
                ("c", command),
                ("p", "{}"),
                ("_rt", target),
            ],
        )
        .await;
        id
    }

    /// All entries of a stream.
    pub(crate) async fn entries(&self, key: &str) -> Vec<Entry> {
        self.store.range(key, EntryId::ZERO, 100_000).await.unwrap()
    }

    /// Whether an entry of a site's stream in testing has this field.
    pub(crate) async fn has(&self, site: &str, name: &str, value: &str) -> bool {
        let entries = self.entries(&stream(site)).await;
        entries.iter().any(|entry| field(entry, name) == value)
    }

    /// Waits for entries of a stream that have these fields.
    pub(crate) async fn wait_for(&self, key: &str, wanted: &[(&str, &str)]) -> Entry {
        let what = format!("an entry of {key} with {wanted:?}");
        eventually(PATIENCE, &what, || async {
            self.entries(key).await.into_iter().find(|entry| {
                wanted
                    .iter()
                    .all(|(name, value)| field(entry, name) == *value)
            })
        })
        .await
    }

    /// Waits for the acknowledgement of, or the refusal or reply to, a request of a site.
    pub(crate) async fn answer(&self, site: &str, request: &str) -> Entry {
        self.wait_for(&stream(site), &[("t", "r"), ("ri", request)])
            .await
    }

    /// Waits for a refusal and gives its code.
    pub(crate) async fn code(&self, site: &str, request: &str) -> String {
        let answer = self.answer(site, request).await;
        assert_eq!(field(&answer, "st"), "error", "{answer:?}");
        field(&answer, "_ec")
    }

    /// Waits for a command to arrive at a site.
    pub(crate) async fn arrival(&self, site: &str, request: &str) -> Entry {
        self.wait_for(&stream(site), &[("t", "c"), ("_oi", request)])
            .await
    }

    /// Waits until everything written before has been handled: a ping by each site is answered in order.
    pub(crate) async fn settled(&self, site: &str) {
        let id = format!("ping-{}", self.sequence.fetch_add(1, Ordering::Relaxed));
        self.write(site, &[("t", "c"), ("i", &id), ("c", "ping")])
            .await;
        self.answer(site, &id).await;
    }

    /// Waits until a counter has a value; it is counted only after the store has confirmed.
    pub(crate) async fn counts(&self, name: &str, value: u64) {
        eventually(PATIENCE, &format!("{name} to be {value}"), async || {
            (self.counter(name) == value).then_some(())
        })
        .await;
    }

    /// The sum of a counter over the lines of the metrics page that begin with `name`.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &self.metrics).unwrap();
        page.lines()
            .filter(|line| line.starts_with(name))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }
}

pub(crate) async fn connect(server: &RedisServer) -> Arc<dyn Streams> {
    let url = server.url().parse().unwrap();
    Arc::new(Valkey::connect(&url).await.unwrap())
}

/// The unified stream of a site in testing.
pub(crate) fn stream(site: &str) -> String {
    format!("{site}:gnode:unified:testing")
}

/// A field's text, empty where it isn't there.
pub(crate) fn field(entry: &Entry, name: &str) -> String {
    entry
        .fields
        .get(name.as_bytes())
        .map(|value| String::from_utf8_lossy(value).into_owned())
        .unwrap_or_default()
}

/// A site's id.
pub(crate) fn site(name: &str) -> SiteId {
    SiteId::parse(name).unwrap()
}

/// The environment that tests live in.
pub(crate) fn testing() -> Environment {
    Environment::parse("testing").unwrap()
}
