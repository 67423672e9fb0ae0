//! Services that send, answer and count, over nothing but the store's protocol, and that outlive
//! whatever happens to the store and to the daemon.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossway_harness::store::unified_stream as stream;
use redis::aio::MultiplexedConnection;
use redis::streams::{StreamId, StreamRangeReply, StreamReadReply};
use redis::{AsyncConnectionConfig, RedisResult};
use tokio::task::JoinHandle;

/// Commands sent and not yet answered, at most.
const WINDOW: usize = 1000;

/// Commands in one go.
const CHUNK: usize = 100;

/// A sender, a service that answers, and their counts.
pub(crate) struct Traffic {
    url: String,
    from: String,
    to: String,
    total: usize,
    answered: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(2)))
        .set_response_timeout(Some(Duration::from_secs(10)));
    redis::Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// Connects for as long as it takes, within reason.
async fn reconnect(url: &str) -> MultiplexedConnection {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        match connect(url).await {
            Ok(connection) => return connection,
            Err(error) => assert!(
                tokio::time::Instant::now() < deadline,
                "the store doesn't come back: {error}"
            ),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn text(entry: &StreamId, field: &str) -> String {
    entry.get(field).unwrap_or_default()
}

impl Traffic {
    /// Registers both sites and begins: `total` numbered commands go from one to the other.
    pub(crate) async fn start(url: &str, from: &str, to: &str, total: usize) -> Traffic {
        let mut connection = reconnect(url).await;
        for site in [from, to] {
            let body = r#"{"environments":["production"],"metadata":{}}"#;
            let _: i64 = redis::cmd("HSET")
                .arg("gnode:gnode:sites")
                .arg(site)
                .arg(body)
                .query_async(&mut connection)
                .await
                .unwrap();
            let made: RedisResult<()> = redis::cmd("XGROUP")
                .arg("CREATE")
                .arg(stream(site))
                .arg("service")
                .arg("0")
                .arg("MKSTREAM")
                .query_async(&mut connection)
                .await;
            made.unwrap();
        }
        let mut traffic = Traffic {
            url: url.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            total,
            answered: Arc::default(),
            tasks: Vec::new(),
        };
        let (url, answered) = (traffic.url.clone(), Arc::clone(&traffic.answered));
        traffic.tasks.push(tokio::spawn(send(
            url,
            traffic.from.clone(),
            traffic.to.clone(),
            total,
            answered,
        )));
        let (url, answered) = (traffic.url.clone(), Arc::clone(&traffic.answered));
        traffic.tasks.push(tokio::spawn(count_replies(
            url,
            traffic.from.clone(),
            answered,
        )));
        traffic.tasks.push(tokio::spawn(answer(
            traffic.url.clone(),
            traffic.to.clone(),
        )));
        traffic
    }

    /// Replies that have come home.
    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits until so many replies have come home.
    pub(crate) async fn reaches(&self, count: usize) {
        let count = count.min(self.total);
        let mut last = (self.answered(), tokio::time::Instant::now());
        while self.answered() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if self.answered() > last.0 {
                last = (self.answered(), tokio::time::Instant::now());
            }
            assert!(
                last.1.elapsed() < Duration::from_secs(40),
                "stuck at {} of {count} replies",
                self.answered()
            );
        }
    }

    /// Waits for the end and counts: every command arrived once, was acknowledged once, and was
    /// answered once. Order was kept.
    pub(crate) async fn exactly_once(mut self) {
        self.reaches(self.total).await;
        for task in self.tasks.drain(..) {
            task.abort();
        }
        let mut connection = reconnect(&self.url).await;
        let numbers = async |connection: &mut MultiplexedConnection, site: &str, field: &str| {
            let entries = all(connection, &stream(site)).await;
            let commands = entries.iter().filter(|entry| text(entry, "t") == "c");
            commands
                .map(|entry| text(entry, field).parse().unwrap())
                .collect::<Vec<usize>>()
        };
        once_and_in_order(
            &numbers(&mut connection, &self.from, "i").await,
            self.total,
            "sent",
        );
        once_and_in_order(
            &numbers(&mut connection, &self.to, "_oi").await,
            self.total,
            "arrived",
        );
        let (mut acknowledged, mut answered) = (BTreeMap::new(), BTreeMap::new());
        for entry in all(&mut connection, &stream(&self.from)).await {
            if text(&entry, "t") == "r" {
                assert_eq!(text(&entry, "st"), "ok", "{entry:?}");
                let request: usize = text(&entry, "ri").parse().unwrap();
                let counts = if text(&entry, "ss") == "gnode" {
                    &mut acknowledged
                } else {
                    &mut answered
                };
                *counts.entry(request).or_insert(0) += 1;
            }
        }
        let once: BTreeMap<usize, i32> = (0..self.total).map(|request| (request, 1)).collect();
        assert!(acknowledged == once, "each command is acknowledged once");
        assert!(answered == once, "each command is answered once");
    }
}

/// Tells the first number that isn't where it should be, and not all twenty thousand.
fn once_and_in_order(numbers: &[usize], total: usize, what: &str) {
    let wrong = numbers
        .iter()
        .enumerate()
        .find(|(at, number)| at != *number);
    assert_eq!(
        wrong, None,
        "each command {what} once and in order; place and number"
    );
    assert_eq!(numbers.len(), total, "commands that {what}");
}

impl Drop for Traffic {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// All entries of a stream.
pub(crate) async fn all(connection: &mut MultiplexedConnection, key: &str) -> Vec<StreamId> {
    let mut entries: Vec<StreamId> = Vec::new();
    loop {
        let from = entries
            .last()
            .map_or_else(|| "-".to_owned(), |last| format!("({}", last.id));
        let page: StreamRangeReply = redis::cmd("XRANGE")
            .arg(key)
            .arg(from)
            .arg("+")
            .arg("COUNT")
            .arg(2000)
            .query_async(connection)
            .await
            .unwrap();
        if page.ids.is_empty() {
            return entries;
        }
        entries.extend(page.ids);
    }
}

/// Sends numbers in order. After a broken connection it looks which of the last ones had been
/// written, so that it sends each exactly once.
async fn send(url: String, from: String, to: String, total: usize, answered: Arc<AtomicUsize>) {
    let mut connection = reconnect(&url).await;
    let key = stream(&from);
    let (mut sent, mut last) = (0, "0-0".to_owned());
    while sent < total {
        if sent >= answered.load(Ordering::Relaxed) + WINDOW {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        let end = total.min(sent + CHUNK);
        let mut pipe = redis::pipe();
        for number in sent..end {
            pipe.cmd("XADD")
                .arg(&key)
                .arg("*")
                .arg("t")
                .arg("c")
                .arg("i")
                .arg(number)
                .arg("c")
                .arg("double");
            pipe.arg("p")
                .arg(format!("{{\"n\":{number}}}"))
                .arg("_rt")
                .arg(&to);
        }
        let written: RedisResult<Vec<String>> = pipe.query_async(&mut connection).await;
        if let Ok(ids) = written {
            last = ids.last().cloned().unwrap_or(last);
            sent = end;
            continue;
        }
        // Nothing else of this sender can come in any more once the old connection is gone.
        connection = reconnect(&url).await;
        let after: StreamRangeReply = loop {
            let mut asked = redis::cmd("XRANGE");
            asked.arg(&key).arg(format!("({last}")).arg("+");
            match asked.query_async(&mut connection).await {
                Ok(reply) => break reply,
                Err(_) => connection = reconnect(&url).await,
            }
        };
        for entry in after.ids.iter().filter(|entry| text(entry, "t") == "c") {
            last.clone_from(&entry.id);
            sent = sent.max(text(entry, "i").parse::<usize>().unwrap() + 1);
        }
    }
}

/// Follows the sender's stream and counts the requests that were answered.
async fn count_replies(url: String, from: String, answered: Arc<AtomicUsize>) {
    let mut connection = reconnect(&url).await;
    let (key, mut last, mut seen) = (stream(&from), "0-0".to_owned(), HashSet::new());
    loop {
        let read: RedisResult<Option<StreamReadReply>> = redis::cmd("XREAD")
            .arg("COUNT")
            .arg(1000)
            .arg("BLOCK")
            .arg(500)
            .arg("STREAMS")
            .arg(&key)
            .arg(&last)
            .query_async(&mut connection)
            .await;
        match read {
            Ok(reply) => {
                for entry in reply
                    .into_iter()
                    .flat_map(|reply| reply.keys)
                    .flat_map(|key| key.ids)
                {
                    last.clone_from(&entry.id);
                    if text(&entry, "t") == "r"
                        && text(&entry, "ss") != "gnode"
                        && seen.insert(text(&entry, "ri"))
                    {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            Err(_) => connection = reconnect(&url).await,
        }
    }
}

/// Answers every command; after a broken connection it takes up what it had in hand.
async fn answer(url: String, site: String) {
    let mut connection = reconnect(&url).await;
    let key = stream(&site);
    let mut place = "0".to_owned();
    loop {
        let read: RedisResult<Option<StreamReadReply>> = redis::cmd("XREADGROUP")
            .arg("GROUP")
            .arg("service")
            .arg("one")
            .arg("COUNT")
            .arg(500)
            .arg("BLOCK")
            .arg(500)
            .arg("STREAMS")
            .arg(&key)
            .arg(&place)
            .query_async(&mut connection)
            .await;
        let entries: Vec<StreamId> = match read {
            Ok(reply) => reply
                .into_iter()
                .flat_map(|reply| reply.keys)
                .flat_map(|key| key.ids)
                .collect(),
            Err(_) => {
                connection = reconnect(&url).await;
                place = "0".to_owned();
                continue;
            }
        };
        if entries.is_empty() {
            place = ">".to_owned();
            continue;
        }
        let mut pipe = redis::pipe();
        for entry in &entries {
            if text(entry, "t") == "c" {
                pipe.cmd("XADD")
                    .arg(&key)
                    .arg("*")
                    .arg("t")
                    .arg("r")
                    .arg("ri")
                    .arg(text(entry, "i"));
                pipe.arg("st")
                    .arg("ok")
                    .arg("r")
                    .arg(text(entry, "p"))
                    .ignore();
            }
            pipe.cmd("XACK")
                .arg(&key)
                .arg("service")
                .arg(&entry.id)
                .ignore();
        }
        let settled: RedisResult<()> = pipe.query_async(&mut connection).await;
        if settled.is_err() {
            connection = reconnect(&url).await;
            place = "0".to_owned();
        }
    }
}
