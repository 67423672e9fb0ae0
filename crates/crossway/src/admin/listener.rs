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
                    let idle = Box::pin(tokio::time::sleep(IDLE));
                    return (
                        Held {
                            stream,
                            idle,
                            _permit: permit,
                        },
                        from,
                    );
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

/// A connection with its place among the bounded number; it breaks when nothing moves for [`IDLE`].
pub(super) struct Held {
    stream: TcpStream,
    idle: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Held {
    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        moved: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match moved {
            Poll::Ready(done) => {
                self.idle.as_mut().reset(Instant::now() + IDLE);
                Poll::Ready(done)
            }
            Poll::Pending => {
                std::task::ready!(self.idle.as_mut().poll(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl AsyncRead for Held {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let moved = Pin::new(&mut self.stream).poll_read(cx, into);
        self.watch(cx, moved)
    }
}

impl AsyncWrite for Held {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let moved = Pin::new(&mut self.stream).poll_write(cx, from);
        self.watch(cx, moved)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
