//! A cluster of `redis-server` processes.

use std::time::Duration;

use redis::aio::MultiplexedConnection;

use crate::eventually::eventually;
use crate::port;
use crate::redis_server::RedisServer;

/// How long the nodes may take until they agree; a node alone waits two seconds before it writes.
const JOIN_DEADLINE: Duration = Duration::from_secs(60);
/// After so long without a word a node is taken for dead, and its replica is promoted.
const NODE_TIMEOUT_MS: &str = "1500";
const SLOTS: usize = 16384;

/// Nodes that share the slots among them, each master with at most one replica.
#[derive(Debug)]
pub struct RedisCluster {
    masters: Vec<RedisServer>,
    replicas: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts so many masters with equal shares of the slots, without replicas.
    pub async fn start(masters: usize) -> RedisCluster {
        let masters = nodes(masters).await;
        let cluster = RedisCluster {
            masters,
            replicas: Vec::new(),
        };
        cluster.share_slots().await;
        cluster.meet().await;
        cluster.agree().await;
        cluster
    }

    /// As [`RedisCluster::start`], with a replica for each master that follows it.
    pub async fn start_with_replicas(masters: usize) -> RedisCluster {
        let cluster = RedisCluster {
            masters: nodes(masters).await,
            replicas: nodes(masters).await,
        };
        cluster.share_slots().await;
        cluster.meet().await;
        cluster.follow().await;
        cluster.agree().await;
        cluster
    }

    /// `redis+cluster://127.0.0.1:PORT,127.0.0.1:PORT,…`, of all who were masters at the start.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self
            .masters
            .iter()
            .map(|server| format!("127.0.0.1:{}", server.port()))
            .collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// Who was started as a master of this number.
    #[must_use]
    pub fn master(&self, number: usize) -> &RedisServer {
        &self.masters[number]
    }

    /// Ends the process of a master at once; its replica takes over after a while.
    pub fn kill(&mut self, number: usize) {
        self.masters[number].kill();
    }

    /// The number of the master that has a key's slot from the start on.
    pub async fn master_of(&self, key: &str) -> usize {
        let slot: usize = ask(
            &mut self.alive().await,
            &["CLUSTER".as_ref(), "KEYSLOT".as_ref(), key.as_ref()],
        )
        .await
        .expect("a slot");
        slot * self.masters.len() / SLOTS
    }

    /// A connection to each node that runs as a master now.
    pub async fn clients(&self) -> Vec<MultiplexedConnection> {
        let mut clients = Vec::new();
        for server in self.masters.iter().chain(&self.replicas) {
            if !server.runs() {
                continue;
            }
            let mut client = server.client().await;
            let role: redis::Value = ask(&mut client, &["ROLE".as_ref()]).await.expect("a role");
            let redis::Value::Array(role) = role else {
                panic!("a role is a list: {role:?}");
            };
            if role.first() == Some(&redis::Value::BulkString(b"master".to_vec())) {
                clients.push(client);
            }
        }
        clients
    }

    /// Deletes everything on all masters.
    pub async fn flush(&self) {
        for mut client in self.clients().await {
            let done: String = ask(&mut client, &["FLUSHALL".as_ref()])
                .await
                .expect("FLUSHALL");
            assert_eq!(done, "OK");
        }
    }

    /// Begins to move a key's slot from the master that has it to another: its keys are there
    /// already, and who asks the old one for them is sent on (`ASK`).
    pub async fn begin_to_move(&self, key: &str, from: usize, to: usize) {
        let (mut old, mut new) = (
            self.masters[from].client().await,
            self.masters[to].client().await,
        );
        let slot: u16 = say(&mut old, &["CLUSTER", "KEYSLOT", key]).await;
        let slot = slot.to_string();
        let old_id: String = say(&mut old, &["CLUSTER", "MYID"]).await;
        let new_id: String = say(&mut new, &["CLUSTER", "MYID"]).await;
        let importing = ["CLUSTER", "SETSLOT", &slot, "IMPORTING", &old_id];
        let migrating = ["CLUSTER", "SETSLOT", &slot, "MIGRATING", &new_id];
        let _: String = say(&mut new, &importing).await;
        let _: String = say(&mut old, &migrating).await;
        let port = self.masters[to].port().to_string();
        let keys: Vec<String> = say(&mut old, &["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]).await;
        for key in keys {
            let migrate = ["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"];
            let _: String = say(&mut old, &migrate).await;
        }
    }

    /// Ends the move of a key's slot: the old master sends everybody to the new one for good (`MOVED`).
    pub async fn finish_the_move(&self, key: &str, to: usize) {
        let new_id: String = say(&mut self.masters[to].client().await, &["CLUSTER", "MYID"]).await;
        // The new one first, so that there is always somebody who has it.
        let others = self.masters.iter().enumerate().filter(|(at, _)| *at != to);
        for server in std::iter::once(&self.masters[to]).chain(others.map(|(_, server)| server)) {
            let mut client = server.client().await;
            let slot: u16 = say(&mut client, &["CLUSTER", "KEYSLOT", key]).await;
            let slot = slot.to_string();
            let _: String = say(&mut client, &["CLUSTER", "SETSLOT", &slot, "NODE", &new_id]).await;
        }
    }

    async fn alive(&self) -> MultiplexedConnection {
        let mut servers = self.masters.iter().chain(&self.replicas);
        let server = servers
            .find(|server| server.runs())
            .expect("a node that runs");
        server.client().await
    }

    async fn share_slots(&self) {
        let masters = self.masters.len();
        for (number, server) in self.masters.iter().enumerate() {
            // The first slot that belongs to each by `slot * masters / SLOTS`.
            let first = (number * SLOTS).div_ceil(masters);
            let last = ((number + 1) * SLOTS).div_ceil(masters) - 1;
            let (first, last, epoch) = (
                first.to_string(),
                last.to_string(),
                (number + 1).to_string(),
            );
            let mut client = server.client().await;
            let _: String = say(&mut client, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await;
            let _: String = say(&mut client, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
        }
    }

    async fn meet(&self) {
        let mut first = self.masters[0].client().await;
        let others = self.masters.iter().skip(1).chain(&self.replicas);
        for server in others {
            let (port, bus) = (server.port().to_string(), bus_port(server).await);
            let _: String = say(&mut first, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await;
        }
    }

    async fn follow(&self) {
        for (master, replica) in self.masters.iter().zip(&self.replicas) {
            let id: String = say(&mut master.client().await, &["CLUSTER", "MYID"]).await;
            let mut client = replica.client().await;
            eventually(
                JOIN_DEADLINE,
                "a replica that knows its master",
                async || {
                    let followed: redis::RedisResult<String> = ask(
                        &mut client,
                        &["CLUSTER".as_ref(), "REPLICATE".as_ref(), id.as_ref()],
                    )
                    .await;
                    followed.ok()
                },
            )
            .await;
        }
    }

    /// Waits until every node says the same of all the others.
    async fn agree(&self) {
        let wanted = self.masters.len() + self.replicas.len();
        for server in self.masters.iter().chain(&self.replicas) {
            let mut client = server.client().await;
            eventually(JOIN_DEADLINE, "a cluster that agrees", async || {
                let state: String = say(&mut client, &["CLUSTER", "INFO"]).await;
                let listed: usize = self.listed(&mut client).await;
                (state.contains("cluster_state:ok") && listed == wanted).then_some(())
            })
            .await;
        }
        for replica in &self.replicas {
            let mut client = replica.client().await;
            eventually(
                JOIN_DEADLINE,
                "a replica that has all of its master",
                async || {
                    let state: String = say(&mut client, &["INFO", "replication"]).await;
                    state.contains("master_link_status:up").then_some(())
                },
            )
            .await;
        }
    }

    /// Masters and replicas in the map of slots that a node gives.
    async fn listed(&self, client: &mut MultiplexedConnection) -> usize {
        let ranges: Vec<Vec<redis::Value>> = say(client, &["CLUSTER", "SLOTS"]).await;
        ranges.iter().map(|range| range.len() - 2).sum()
    }
}

async fn nodes(count: usize) -> Vec<RedisServer> {
    let mut servers = Vec::new();
    for _ in 0..count {
        let bus = port::free().to_string();
        let server = RedisServer::builder()
            .config("cluster-enabled", "yes")
            .config("cluster-port", &bus)
            .config("cluster-node-timeout", NODE_TIMEOUT_MS)
            .config("cluster-replica-validity-factor", "0")
            .config("repl-diskless-sync", "yes")
            .config("repl-diskless-sync-delay", "0")
            .start()
            .await;
        servers.push(server);
    }
    servers
}

async fn bus_port(server: &RedisServer) -> String {
    let (_, port): (String, String) = say(
        &mut server.client().await,
        &["CONFIG", "GET", "cluster-port"],
    )
    .await;
    port
}

async fn say<T: redis::FromRedisValue>(client: &mut MultiplexedConnection, words: &[&str]) -> T {
    let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    ask(client, &bytes)
        .await
        .unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

async fn ask<T: redis::FromRedisValue>(
    client: &mut MultiplexedConnection,
    words: &[&[u8]],
) -> redis::RedisResult<T> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command.query_async(client).await
}
