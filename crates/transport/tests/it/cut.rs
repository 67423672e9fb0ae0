//! A way to the store that can be cut at a chosen moment.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Passes bytes on between clients and one server.
pub(crate) struct Way {
    port: u16,
    plan: Arc<Plan>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Plan {
    /// Whether the next connection that sends a call of a script is cut instead of answered.
    armed: AtomicBool,
    cuts: AtomicUsize,
    /// Whether the server is left in the belief that its connections are whole.
    kept: AtomicBool,
    server_sides: Mutex<Vec<TcpStream>>,
}

impl Way {
    pub(crate) async fn to(port: u16) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let plan = Arc::new(Plan::default());
        let shared = Arc::clone(&plan);
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.expect("a client");
                tokio::spawn(pass(client, port, Arc::clone(&shared)));
            }
        });
        Way {
            port: own,
            plan,
            task,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Lets the next call of a script reach the server, and its answer nobody.
    pub(crate) fn cut_the_next_answer(&self) {
        self.plan.armed.store(true, Ordering::SeqCst);
    }

    /// From now on the server isn't told when a connection ends.
    pub(crate) fn keep_server_sides(&self) {
        self.plan.kept.store(true, Ordering::SeqCst);
    }

    /// How often it was cut.
    pub(crate) fn cuts(&self) -> usize {
        self.plan.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(client: TcpStream, port: u16, plan: Arc<Plan>) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else {
        return;
    };
    exchange(client, &mut server, &plan).await;
    if plan.kept.load(Ordering::SeqCst) {
        plan.server_sides
            .lock()
            .expect("no test panics with the lock held")
            .push(server);
    }
}

async fn exchange(mut client: TcpStream, server: &mut TcpStream, plan: &Plan) {
    let (mut from_client, mut from_server) = (vec![0; 65536], vec![0; 65536]);
    let mut doomed = false;
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let Ok(length @ 1..) = read else { return };
                let bytes = &from_client[..length];
                if bytes.windows(7).any(|word| word == b"EVALSHA") && plan.armed.swap(false, Ordering::SeqCst) {
                    doomed = true;
                }
                if server.write_all(bytes).await.is_err() { return }
            }
            read = server.read(&mut from_server) => {
                let Ok(length @ 1..) = read else { return };
                if doomed {
                    plan.cuts.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                if client.write_all(&from_server[..length]).await.is_err() { return }
            }
        }
    }
}
