//! A store under test, and the words in which tests speak of it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crossway_core::entry::{Entry, EntryId, Fields};
use crossway_harness::{RedisCluster, RedisServer};
use crossway_transport::streams::cluster::Cluster;
use crossway_transport::streams::embedded::server::{Server, ServerOptions};
use crossway_transport::streams::embedded::{Embedded, EmbeddedOptions, Sync};
use crossway_transport::streams::valkey::Valkey;
use crossway_transport::streams::{
    Append, Batch, Fence, GroupReader, Key, Put, Read, ReadEntry, ReaderOptions, Settled,
    Settlement, StoreError, Streams,
};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long anything may take; far more than it should.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// A wait that no test is patient enough for: what ends it must be something else.
pub(crate) const ENDLESS: Duration = Duration::from_secs(600);

/// A store, with a way past the port to what is behind it.
pub(crate) struct Store {
    pub(crate) streams: Arc<dyn Streams>,
    /// One for each node that may have the key.
    raw: Vec<redis::aio::MultiplexedConnection>,
    _kept: Box<dyn Any + Send + std::marker::Sync>,
}

impl Store {
    /// The adapter for servers, on a real one.
    pub(crate) async fn valkey() -> Store {
        let server = RedisServer::start().await;
        Store::over(connect(&server.url()).await, server.client().await, server).await
    }

    /// The adapter for servers, on one that the test keeps.
    pub(crate) async fn on(server: &RedisServer) -> Store {
        Store::by(&server.url(), server).await
    }

    /// The same, by a way of its own.
    pub(crate) async fn by(url: &str, server: &RedisServer) -> Store {
        Store::over(connect(url).await, server.client().await, ()).await
    }

    /// The adapter for clusters, on a real one that the test keeps.
    pub(crate) async fn on_cluster(cluster: &RedisCluster) -> Store {
        let url = cluster.url().parse().expect("a URL");
        let streams = Arc::new(Cluster::open(&url).await.expect("a store"));
        let mut store = Store::over(streams, cluster.master(0).client().await, ()).await;
        store.raw = cluster.clients().await;
        store
    }

    /// The embedded store, without a folder.
    pub(crate) async fn embedded() -> Store {
        let store = Embedded::in_memory();
        let (url, guard) = serve(Arc::clone(&store)).await;
        Store::over(store, client(&url).await, guard).await
    }

    /// The embedded store, in a folder.
    pub(crate) async fn embedded_in_a_folder() -> Store {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Embedded::open(EmbeddedOptions {
            dir: folder.path().to_owned(),
            sync: Sync::Always,
        })
        .expect("a store");
        let (url, guard) = serve(Arc::clone(&store)).await;
        Store::over(store, client(&url).await, (guard, folder)).await
    }

    async fn over(
        streams: Arc<dyn Streams>,
        raw: redis::aio::MultiplexedConnection,
        kept: impl Any + Send + std::marker::Sync,
    ) -> Store {
        streams
            .hash_set(MEMBERS, "me", "1")
            .await
            .expect("a membership");
        Store {
            streams,
            raw: vec![raw],
            _kept: Box::new(kept),
        }
    }

    /// Says something to the store that the port has no words for.
    pub(crate) async fn raw<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        for node in &self.raw {
            match command.query_async(&mut node.clone()).await {
                Err(error) if error.code() == Some("MOVED") => {}
                answer => return answer.unwrap_or_else(|error| panic!("{words:?}: {error}")),
            }
        }
        panic!("{words:?}: no node has the key")
    }

    /// Adds an entry of one field.
    pub(crate) async fn add(&self, stream: &str, value: &str) -> EntryId {
        self.streams
            .append(stream, fields(&[("v", value)]))
            .await
            .expect("an appended entry")
    }

    /// The values of the field that [`Store::add`] writes, of all entries of a stream.
    pub(crate) async fn values(&self, stream: &str) -> Vec<String> {
        self.all(stream).await.iter().map(value).collect()
    }

    /// All entries of a stream.
    pub(crate) async fn all(&self, stream: &str) -> Vec<Entry> {
        self.streams
            .range(stream, EntryId::ZERO, 100_000)
            .await
            .expect("a range")
    }

    /// How many entries wait for their settlement.
    pub(crate) async fn pending(&self, stream: &str) -> usize {
        let (count, ..): (usize, redis::Value, redis::Value, redis::Value) =
            self.raw(&["XPENDING", stream, "relay"]).await;
        count
    }

    /// A reader of some streams.
    pub(crate) fn reader(&self, streams: &[&str]) -> Box<dyn GroupReader> {
        self.reader_with(streams, |_| {})
    }

    /// A reader that differs in something.
    pub(crate) fn reader_with(
        &self,
        streams: &[&str],
        change: impl FnOnce(&mut ReaderOptions),
    ) -> Box<dyn GroupReader> {
        let mut options = ReaderOptions {
            group: "relay".into(),
            consumer: "me".into(),
            count: 100,
            block: Duration::from_millis(100),
            max_entry_bytes: 16 << 20,
            max_fields: 100,
            watched: Vec::new(),
        };
        change(&mut options);
        let mut reader = self.streams.reader(options);
        reader.assign(keys(streams));
        reader
    }
}

/// Connects the adapter for servers.
pub(crate) async fn connect(url: &str) -> Arc<dyn Streams> {
    Arc::new(
        Valkey::connect(&url.parse().expect("a URL"))
            .await
            .expect("a connection"),
    )
}

async fn serve(store: Arc<Embedded>) -> (String, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("an address"));
    let shutdown = CancellationToken::new();
    tokio::spawn(Server::serve(
        listener,
        store,
        ServerOptions::default(),
        shutdown.clone(),
    ));
    (url, shutdown.drop_guard())
}

async fn client(url: &str) -> redis::aio::MultiplexedConnection {
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(DEADLINE));
    let client = redis::Client::open(url).expect("a URL");
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .expect("a connection")
}

const MEMBERS: &str = "members";

/// The fence that holds.
pub(crate) fn fence() -> Fence {
    Fence {
        key: MEMBERS.into(),
        field: "me".to_owned(),
        value: "1".to_owned(),
    }
}

pub(crate) fn fields(pairs: &[(&str, &str)]) -> Fields {
    pairs
        .iter()
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect()
}

pub(crate) fn keys(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| Key::from(*name)).collect()
}

/// A settlement that adds an entry of one field.
pub(crate) fn forward(read: &Read, target: &str, value: &str) -> Settlement {
    let appends = vec![Append {
        stream: target.into(),
        fields: fields(&[("v", value)]),
    }];
    Settlement {
        appends,
        ..bare(read)
    }
}

/// A settlement that only acknowledges.
pub(crate) fn bare(read: &Read) -> Settlement {
    Settlement::acknowledge(read.stream.clone(), id(read))
}

pub(crate) fn put(key: &str, value: &'static str) -> Put {
    Put {
        key: key.into(),
        value: bytes::Bytes::from_static(value.as_bytes()),
        ttl: Duration::from_secs(60),
    }
}

pub(crate) fn id(read: &Read) -> EntryId {
    match &read.entry {
        ReadEntry::Whole(entry) => entry.id,
        ReadEntry::Oversize { id, .. } | ReadEntry::Gone(id) => *id,
    }
}

/// The value of the field that [`Store::add`] writes.
pub(crate) fn value(entry: &Entry) -> String {
    String::from_utf8_lossy(entry.fields.get(b"v").expect("the field `v`")).into_owned()
}

/// What was read, as `stream=value`.
pub(crate) fn said(reads: &[Read]) -> Vec<String> {
    let said = reads.iter().map(|read| match &read.entry {
        ReadEntry::Whole(entry) => format!("{}={}", read.stream, value(entry)),
        other => panic!("expected a whole entry of {}, got {other:?}", read.stream),
    });
    said.collect()
}

/// Reads until there are so many entries, and gives all batches as one.
pub(crate) async fn read(reader: &mut dyn GroupReader, entries: usize) -> Batch {
    read_until(reader, &format!("{entries} entries"), |batch| {
        batch.entries.len() >= entries
    })
    .await
}

/// Reads until a condition holds for all batches taken as one.
pub(crate) async fn read_until(
    reader: &mut dyn GroupReader,
    what: &str,
    enough: impl Fn(&Batch) -> bool,
) -> Batch {
    let mut all = Batch::default();
    let reading = async {
        while !enough(&all) {
            let batch = reader.read().await.expect("a read");
            all.entries.extend(batch.entries);
            all.remade.extend(batch.remade);
            all.not_streams.extend(batch.not_streams);
            all.changed |= batch.changed;
        }
    };
    if tokio::time::timeout(DEADLINE, reading).await.is_err() {
        panic!("no {what} within {DEADLINE:?}, only {all:?}");
    }
    all
}

/// Settles under the fence that holds.
pub(crate) async fn settle(
    reader: &mut dyn GroupReader,
    settlements: Vec<Settlement>,
) -> Result<Vec<Settled>, StoreError> {
    tokio::time::timeout(DEADLINE, reader.settle(&fence(), settlements))
        .await
        .expect("an answer in time")
}
