//! A listener that holds a bounded number of connections, none of them for ever.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// A handful of scrapers and probes, and room for people.
const MAX_CONNECTIONS: usize = 64;
/// Longer than the usual pause between two scrapes, so that they keep their connection.
const IDLE: Duration = Duration::from_secs(75);
/// How long it may be idle when all places are taken.
const IDLE_CROWDED: Duration = Duration::from_secs(5);
/// How long a request may take, from its first byte (or from connecting) to the first of its answer.
/// No page takes long to make.
const REQUEST: Duration = Duration::from_secs(5);
/// How often a connection looks whether its time is over.
const LOOK: Duration = Duration::from_millis(500);

pub(super) struct Bounded {
    listener: TcpListener,
    room: Arc<Semaphore>,
}

impl Bounded {
    pub(super) fn new(listener: TcpListener) -> Bounded {
        Bounded {
            listener,
            room: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        }
    }
}

impl Listener for Bounded {
    type Io = Held;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Held, SocketAddr) {
        loop {
            // Whoever comes beyond the bound waits in the operating system's own queue.
            let Ok(permit) = self.room.clone().acquire_owned().await else {
                // Nobody closes the semaphore.
                return std::future::pending().await;
            };
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    let held = Held {
                        stream,
                        doing: Doing::Request,
                        since: Instant::now(),
                        look: Box::pin(tokio::time::sleep(LOOK)),
                        room: self.room.clone(),
                        _permit: permit,
                    };
                    return (held, from);
                }
                Err(error) => {
                    tracing::warn!(%error, "couldn't accept a connection to the admin pages");
                    // Out of file descriptors, most likely: it passes, but not at once.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// What a connection is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// A request is coming, or is about to be answered.
    Request,
    /// Something was answered, and nothing asked since.
    Idle,
}

/// A connection with its place among the bounded number; it breaks when its time is over.
pub(super) struct Held {
    stream: TcpStream,
    doing: Doing,
    /// Since when it does that; of an answer, since its last byte that was written.
    since: Instant,
    look: Pin<Box<Sleep>>,
    room: Arc<Semaphore>,
    _permit: OwnedSemaphorePermit,
}

impl Held {
    fn is_over(&self, now: Instant) -> bool {
        let may_take = match self.doing {
            Doing::Request => REQUEST,
            Doing::Idle if self.room.available_permits() == 0 => IDLE_CROWDED,
            Doing::Idle => IDLE,
        };
        now.saturating_duration_since(self.since) >= may_take
    }

    /// Breaks the connection where its time is over; otherwise looks again in a while.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.look.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if self.is_over(now) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.look.as_mut().reset(now + LOOK);
        }
        Ok(())
    }
}

impl AsyncRead for Held {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_over(cx)?;
        let moved = Pin::new(&mut self.stream).poll_read(cx, into);
        if moved.is_ready() && self.doing == Doing::Idle {
            self.doing = Doing::Request;
            self.since = Instant::now();
        }
        moved
    }
}

impl AsyncWrite for Held {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_over(cx)?;
        let moved = Pin::new(&mut self.stream).poll_write(cx, from);
        if moved.is_ready() {
            self.doing = Doing::Idle;
            self.since = Instant::now();
        }
        moved
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
