//! The embedded store over the Redis protocol, for services that know nothing else.
//!
//! [`inbound`] cuts commands out of the bytes, [`table`] says which commands there are,
//! [`parse`] and [`parse_groups`] make a [`command`] of the arguments, [`execute`] carries it out, [`reply`] puts the
//! answer in the client's version of the protocol. One [`connection`] is one task.

mod arguments;
mod command;
mod connection;
mod execute;
mod inbound;
mod parse;
mod parse_groups;
mod reply;
mod session;
mod show;
mod stream_info;
mod table;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Embedded;

/// How long to wait before accepting again after the system refused, usually for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a client that is turned away gets to take its answer.
const TURN_AWAY: Duration = Duration::from_secs(1);

/// A password that clients must give; never shown.
#[derive(Clone)]
pub struct Password(Arc<[u8]>);

impl Password {
    /// Takes a password.
    #[must_use]
    pub fn new(password: &str) -> Password {
        Password(Arc::from(password.as_bytes()))
    }

    /// Compares in a time that doesn't tell how much of it was right.
    fn is(&self, given: &[u8]) -> bool {
        let different =
            self.0
                .iter()
                .enumerate()
                .fold(self.0.len() ^ given.len(), |different, (at, byte)| {
                    different | usize::from(byte ^ given.get(at).copied().unwrap_or_default())
                });
        std::hint::black_box(different) == 0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// How the store is served.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// What clients must give before anything else, if anything.
    pub password: Option<Password>,
    /// Clients at one time; more are turned away.
    pub max_connections: usize,
    /// Bytes of one command with all its arguments; a client that sends more is disconnected.
    pub max_command_bytes: usize,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        // A command of 64 MiB is well beyond any message; 1024 clients are within the usual limit
        // of open files.
        ServerOptions {
            password: None,
            max_connections: 1024,
            max_command_bytes: 64 << 20,
        }
    }
}

/// Serves an embedded store over the Redis protocol.
#[derive(Debug, Clone, Copy)]
pub struct Server;

impl Server {
    /// Serves until `shutdown` is cancelled and every connection has ended.
    pub async fn serve(
        listener: TcpListener,
        store: Arc<Embedded>,
        options: ServerOptions,
        shutdown: CancellationToken,
    ) {
        let seats = Arc::new(Semaphore::new(
            options.max_connections.min(Semaphore::MAX_PERMITS),
        ));
        let house = Arc::new(House {
            store: Arc::clone(&store.store),
            port: listener.local_addr().map_or(0, |at| at.port()),
            options,
            clients: AtomicU64::new(0),
        });
        let tasks = TaskTracker::new();
        let mut last_id = 0u64;
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, _)) => match Arc::clone(&seats).try_acquire_owned() {
                    Ok(seat) => {
                        last_id = last_id.saturating_add(1);
                        let (id, house, shutdown) = (last_id, Arc::clone(&house), shutdown.clone());
                        tasks.spawn(async move {
                            house.clients.fetch_add(1, Ordering::Relaxed);
                            connection::serve(id, socket, &house, shutdown).await;
                            house.clients.fetch_sub(1, Ordering::Relaxed);
                            drop(seat);
                        });
                    }
                    Err(_) => {
                        tasks.spawn(turn_away(socket));
                    }
                },
                Err(error) => {
                    tracing::warn!(%error, "a connection to the embedded store couldn't be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        tasks.close();
        tasks.wait().await;
    }
}

/// What all connections of one server share.
struct House {
    store: Arc<super::Store>,
    port: u16,
    options: ServerOptions,
    clients: AtomicU64,
}

async fn turn_away(mut socket: TcpStream) {
    let answer = socket.write_all(b"-ERR max number of clients reached\r\n");
    // Whether it hears why makes no difference to anybody else.
    let _ = tokio::time::timeout(TURN_AWAY, answer).await;
}

#[cfg(test)]
mod tests {
    use super::Password;

    #[test]
    fn only_the_password_itself_is_right() {
        let password = Password::new("secret");
        assert!(password.is(b"secret"));
        for wrong in [
            "",
            "s",
            "secre",
            "secret ",
            "Secret",
            "secrets",
            "\0\0\0\0\0\0",
        ] {
            assert!(!password.is(wrong.as_bytes()), "{wrong:?}");
        }
        assert!(!Password::new("").is(b"x"));
        assert!(!format!("{password:?}").contains("secret"));
    }
}
