//! One connection to the store, owned by one task.

use std::collections::HashSet;
use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::AsyncWriteExt;
use tokio_util::io::poll_read_buf;

use super::codec::{CodecError, Decoder, Token};
use super::dial::{CLUSTER, Dialer, Socket, unreachable};
use super::encode::Outgoing;
use super::frame::{Build, Frame, FrameBuilder};
use crate::streams::{Key, StoreError};

/// How long the store may take to answer a command that doesn't wait.
pub(crate) const ANSWER_DEADLINE: Duration = Duration::from_secs(5);
/// Pieces handed to the system at once.
const MAX_PIECES: usize = 64;

/// Keys that were written, as far as they were told and not asked for since.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) keys: HashSet<Bytes>,
    /// More than could be kept: any key may be among them.
    pub(crate) all: bool,
}

/// More keys than a reader has streams aren't worth telling apart.
const MAX_WRITTEN: usize = 4096;

/// A socket on which the greeting is done.
pub(crate) struct Connection {
    socket: Box<dyn Socket>,
    decoder: Decoder,
    /// A push of which a part has come.
    push: FrameBuilder,
    in_push: bool,
    watched: HashSet<Key>,
    changed: bool,
    /// The keys that were written, where all of them are told; `None` where only watched ones are.
    written: Option<Written>,
    at: Arc<str>,
    /// The connection's number on the store.
    pub(crate) id: u64,
    /// Whether the store speaks RESP3 and so can tell of changes.
    pub(crate) pushes: bool,
}

impl Connection {
    /// Connects, authenticates and chooses the database. `name` is what the store's list of
    /// connections shows.
    pub(crate) async fn open(dialer: &Dialer, name: &str) -> Result<Connection, StoreError> {
        let mut connection = Connection {
            socket: dialer.dial().await?,
            decoder: Decoder::default(),
            push: FrameBuilder::default(),
            in_push: false,
            watched: HashSet::new(),
            changed: false,
            written: None,
            at: Arc::clone(&dialer.at),
            id: 0,
            pushes: false,
        };
        connection.greet(dialer, name).await?;
        Ok(connection)
    }

    async fn greet(&mut self, dialer: &Dialer, name: &str) -> Result<(), StoreError> {
        let credentials = dialer.credentials();
        let user = credentials.map_or("default", |credentials| {
            credentials.user.as_deref().unwrap_or("default")
        });
        let mut words: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if let Some(credentials) = credentials {
            words.extend([
                b"AUTH".as_slice(),
                user.as_bytes(),
                credentials.password.as_bytes(),
            ]);
        }
        words.extend([b"SETNAME".as_slice(), name.as_bytes()]);
        match self.ask(&words).await? {
            Frame::Error(text) if speaks_only_resp2(&text) => {
                if let Some(credentials) = credentials {
                    let password = credentials.password.as_bytes();
                    match &credentials.user {
                        Some(user) => {
                            self.must("AUTH", &[b"AUTH", user.as_bytes(), password])
                                .await?
                        }
                        None => self.must("AUTH", &[b"AUTH", password]).await?,
                    };
                }
                // A name is a courtesy to whoever looks at the list of connections.
                self.ask(&[b"CLIENT", b"SETNAME", name.as_bytes()]).await?;
            }
            Frame::Error(text) => {
                let command = if text.starts_with(b"WRONGPASS") {
                    "AUTH"
                } else {
                    "HELLO"
                };
                return Err(self.refused(command, &text));
            }
            greeting => {
                self.pushes = true;
                let cluster = greeting.elements().windows(2).any(|pair| {
                    matches!(pair, [name, mode] if name.text() == Some(b"mode") && mode.text() == Some(b"cluster"))
                });
                if cluster && !dialer.in_cluster {
                    return Err(self.refused("HELLO", CLUSTER.as_bytes()));
                }
                if dialer.in_cluster && !cluster {
                    let alone = b"ERR this server isn't part of a cluster; name it as redis://HOST";
                    return Err(self.refused("HELLO", alone));
                }
            }
        }
        if dialer.database() != 0 {
            self.must(
                "SELECT",
                &[b"SELECT", dialer.database().to_string().as_bytes()],
            )
            .await?;
        }
        if let Frame::Integer(id) = self.ask(&[b"CLIENT", b"ID"]).await? {
            self.id = u64::try_from(id).unwrap_or_default();
        }
        Ok(())
    }

    /// Sends one command of short words and waits for its answer.
    pub(crate) async fn ask(&mut self, words: &[&[u8]]) -> Result<Frame, StoreError> {
        let mut out = Outgoing::default();
        out.line(words);
        self.send(out.pieces()).await?;
        self.answer().await
    }

    /// As [`Connection::ask`], and an error in answer is an error.
    pub(crate) async fn must(
        &mut self,
        command: &'static str,
        words: &[&[u8]],
    ) -> Result<Frame, StoreError> {
        match self.ask(words).await? {
            Frame::Error(text) => Err(self.refused(command, &text)),
            frame => Ok(frame),
        }
    }

    /// An error of the store about nothing but the connection.
    pub(crate) fn refused(&self, command: &'static str, text: &[u8]) -> StoreError {
        StoreError::Refused {
            command,
            key: self.at.to_string(),
            reason: String::from_utf8_lossy(text).into_owned(),
        }
    }

    /// Writes everything, for at most [`ANSWER_DEADLINE`].
    pub(crate) async fn send(&mut self, pieces: Vec<Bytes>) -> Result<(), StoreError> {
        match tokio::time::timeout(ANSWER_DEADLINE, self.write(pieces)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(unreachable(&self.at, error.to_string())),
            Err(_) => Err(unreachable(
                &self.at,
                format!("it took nothing in for {ANSWER_DEADLINE:?}"),
            )),
        }
    }

    async fn write(&mut self, pieces: Vec<Bytes>) -> std::io::Result<()> {
        let mut pieces: std::collections::VecDeque<Bytes> = pieces.into();
        while !pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_PIECES];
            let mut used = 0;
            for (slice, piece) in slices.iter_mut().zip(&pieces) {
                *slice = IoSlice::new(piece);
                used += 1;
            }
            let mut written = self
                .socket
                .write_vectored(slices.get(..used).unwrap_or_default())
                .await?;
            if written == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            while let Some(first) = pieces.front_mut() {
                if written < first.len() {
                    first.advance(written);
                    break;
                }
                written -= first.len();
                pieces.pop_front();
            }
        }
        self.socket.flush().await
    }

    /// The next answer, for at most [`ANSWER_DEADLINE`].
    pub(crate) async fn answer(&mut self) -> Result<Frame, StoreError> {
        let mut builder = FrameBuilder::default();
        let whole = async {
            loop {
                if let Some(frame) = self.hear(&mut builder).await? {
                    return Ok(frame);
                }
            }
        };
        match tokio::time::timeout(ANSWER_DEADLINE, whole).await {
            Ok(answer) => answer,
            Err(_) => Err(unreachable(
                &self.at,
                format!("it didn't answer within {ANSWER_DEADLINE:?}"),
            )),
        }
    }

    /// Reads until `builder` has its answer; `None` when a watched key has changed before that.
    /// It may be dropped while it waits and called again with the same builder.
    pub(crate) async fn hear<B: Build>(
        &mut self,
        builder: &mut B,
    ) -> Result<Option<B::Out>, StoreError> {
        poll_fn(|cx| self.poll_hear(cx, builder)).await
    }

    /// [`Connection::hear`], for those who wait for several.
    pub(crate) fn poll_hear<B: Build>(
        &mut self,
        cx: &mut Context<'_>,
        builder: &mut B,
    ) -> Poll<Result<Option<B::Out>, StoreError>> {
        loop {
            while let Some(token) = self.next_token(builder)? {
                if self.in_push || (builder.is_fresh() && matches!(token, Token::Push(_))) {
                    let push = self.push.take(token).map_err(|error| self.broken(error))?;
                    self.in_push = push.is_none();
                    if push.is_some_and(|push| self.tells_of_change(&push)) {
                        return Poll::Ready(Ok(None));
                    }
                } else if let Some(out) = builder.take(token).map_err(|error| self.broken(error))? {
                    return Poll::Ready(Ok(Some(out)));
                }
            }
            match ready!(poll_read_buf(
                Pin::new(&mut self.socket),
                cx,
                self.decoder.space()
            )) {
                Ok(0) => {
                    return Poll::Ready(Err(unreachable(&self.at, "it closed the connection")));
                }
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(unreachable(&self.at, error.to_string()))),
            }
        }
    }

    fn next_token<B: Build>(&mut self, builder: &B) -> Result<Option<Token>, StoreError> {
        let room = if self.in_push {
            self.push.room()
        } else {
            builder.room()
        };
        self.decoder.next(room).map_err(|error| self.broken(error))
    }

    fn broken(&self, error: CodecError) -> StoreError {
        StoreError::Protocol {
            at: self.at.to_string(),
            reason: error.to_string(),
        }
    }

    /// Asks the store to tell of changes to these keys, on this connection, in order with its
    /// answers; whether it will.
    pub(crate) async fn watch(&mut self, keys: &[Key]) -> Result<bool, StoreError> {
        if keys.is_empty() {
            return Ok(true);
        }
        self.watched = keys.iter().cloned().collect();
        if !self.pushes {
            return Ok(false);
        }
        let mut words: Vec<&[u8]> = vec![b"CLIENT", b"TRACKING", b"ON", b"BCAST"];
        for prefix in disjoint(keys) {
            words.extend([b"PREFIX".as_slice(), prefix.as_bytes()]);
        }
        Ok(!matches!(self.ask(&words).await?, Frame::Error(_)))
    }

    /// Asks the store to tell of every key that is written, in order with its answers.
    pub(crate) async fn watch_all(&mut self, keys: &[Key]) -> Result<(), StoreError> {
        self.watched = keys.iter().cloned().collect();
        self.written = Some(Written::default());
        let words: [&[u8]; 4] = [b"CLIENT", b"TRACKING", b"ON", b"BCAST"];
        self.must("CLIENT TRACKING", &words).await.map(drop)
    }

    /// The keys that were written since this was asked before.
    pub(crate) fn take_written(&mut self) -> Written {
        self.written
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Whether a watched key has changed since this was asked before.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    fn tells_of_change(&mut self, push: &Frame) -> bool {
        let keys = match push.elements() {
            [kind, keys] if kind.text() == Some(b"invalidate") => keys,
            _ => return false,
        };
        if *keys == Frame::Null {
            if let Some(written) = &mut self.written {
                written.all = true;
            }
            self.changed = true;
            return true;
        }
        let mut told = false;
        for key in keys.elements() {
            let Frame::Text(key) = key else { continue };
            let watched = std::str::from_utf8(key).is_ok_and(|key| self.watched.contains(key));
            self.changed |= watched;
            told |= watched;
            if let Some(written) = &mut self.written {
                told = true;
                written.all |= written.keys.len() >= MAX_WRITTEN;
                if !written.all {
                    written.keys.insert(key.clone());
                }
            }
        }
        told
    }
}

/// The store refuses prefixes of which one begins another; the shorter covers both.
fn disjoint(keys: &[Key]) -> Vec<&str> {
    let mut sorted: Vec<&str> = keys.iter().map(|key| &**key).collect();
    sorted.sort_unstable();
    let mut prefixes: Vec<&str> = Vec::new();
    for key in sorted {
        if !prefixes
            .last()
            .is_some_and(|shorter| key.starts_with(shorter))
        {
            prefixes.push(key);
        }
    }
    prefixes
}

fn speaks_only_resp2(error: &[u8]) -> bool {
    error.starts_with(b"NOPROTO") || error.starts_with(b"ERR unknown command")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_overlapping_prefixes_the_shortest_is_watched() {
        let keys: Vec<Key> = ["b", "a:xy", "a:x", "a:y", "a:x"]
            .into_iter()
            .map(Key::from)
            .collect();
        assert_eq!(disjoint(&keys), ["a:x", "a:y", "b"]);
    }
}
