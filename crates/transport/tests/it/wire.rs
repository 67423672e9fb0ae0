//! A bare client of the Redis protocol, and the embedded store served on a free port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use crossway_transport::streams::embedded::Embedded;
use crossway_transport::streams::embedded::server::{Server, ServerOptions};
use redis_protocol::resp2::types::OwnedFrame as Frame2;
use redis_protocol::resp3::types::OwnedFrame as Frame3;
use redis_protocol::{resp2, resp3};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long an answer may take on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// An embedded store that listens on loopback.
pub(crate) struct Served {
    pub(crate) at: SocketAddr,
    pub(crate) store: Arc<Embedded>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn start(store: Arc<Embedded>, options: ServerOptions) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(Server::serve(
            listener,
            Arc::clone(&store),
            options,
            shutdown.clone(),
        ));
        Served {
            at,
            store,
            shutdown,
            task,
        }
    }

    pub(crate) async fn plain() -> Served {
        Served::start(Embedded::in_memory(), ServerOptions::default()).await
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.at)
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

/// An answer, in either version of the protocol.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Frame {
    Two(Frame2),
    Three(Frame3),
}

impl Frame {
    /// The text of an error.
    pub(crate) fn error(&self) -> Option<&str> {
        match self {
            Frame::Two(Frame2::Error(text)) => Some(text),
            Frame::Three(Frame3::SimpleError { data, .. }) => Some(data),
            _ => None,
        }
    }
}

/// A connection that sends words and gives frames.
pub(crate) struct Client {
    socket: TcpStream,
    input: BytesMut,
    three: bool,
}

impl Client {
    pub(crate) async fn connect(at: SocketAddr) -> Client {
        let socket = TcpStream::connect(at).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Client {
            socket,
            input: BytesMut::new(),
            three: false,
        }
    }

    /// Connects and changes to version three.
    pub(crate) async fn connect_three(at: SocketAddr) -> Client {
        let mut client = Client::connect(at).await;
        client.three = true;
        client.call("HELLO 3").await;
        client
    }

    pub(crate) async fn send(&mut self, words: &[impl AsRef<[u8]>]) {
        let mut out = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            out.extend(format!("${}\r\n", word.as_ref().len()).bytes());
            out.extend(word.as_ref());
            out.extend(b"\r\n");
        }
        self.raw(&out).await;
    }

    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    /// The next answer, or `None` when the server has closed the connection.
    pub(crate) async fn frame(&mut self) -> Option<Frame> {
        loop {
            let decoded = if self.three {
                resp3::decode::complete::decode(&self.input)
                    .unwrap()
                    .map(|(frame, len)| (Frame::Three(frame), len))
            } else {
                resp2::decode::decode(&self.input)
                    .unwrap()
                    .map(|(frame, len)| (Frame::Two(frame), len))
            };
            if let Some((frame, len)) = decoded {
                let _ = self.input.split_to(len);
                return Some(frame);
            }
            let read = self.socket.read_buf(&mut self.input);
            match tokio::time::timeout(DEADLINE, read)
                .await
                .expect("an answer comes")
            {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Sends a line of words and gives the answer.
    pub(crate) async fn call(&mut self, line: &str) -> Frame {
        self.send(&words(line)).await;
        self.frame()
            .await
            .unwrap_or_else(|| panic!("the connection was closed after {line}"))
    }
}

/// Splits a line at spaces; `""` is an empty word.
pub(crate) fn words(line: &str) -> Vec<String> {
    line.split(' ')
        .map(|word| {
            if word == "\"\"" {
                String::new()
            } else {
                word.to_owned()
            }
        })
        .collect()
}
