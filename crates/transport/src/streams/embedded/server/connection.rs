//! One client: its socket, what has come from it, and what it has yet to be sent.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::House;
use super::arguments::Arguments;
use super::execute::{Outcome, execute};
use super::inbound::Inbound;
use super::reply::{Protocol, Reply};
use super::session::{Next, Session};
use super::show;
use super::table::{self, Meaning};
use crate::streams::embedded::blocked::Served;
use crate::streams::embedded::server::command::Command;
use crate::streams::embedded::{Position, now_ms};

/// Bytes asked of the socket at a time.
const READ: usize = 16 * 1024;

/// Answers are sent once they are this many bytes, even when more commands are there to be run.
const WRITE: usize = 256 * 1024;

/// A buffer that has grown beyond this is given back once it is empty.
const KEPT: usize = 1 << 20;

/// While a read waits, so many bytes of the commands after it are taken in.
const AHEAD: usize = 64 * 1024;

/// Serves one client until it leaves, or the server does.
pub(super) async fn serve(id: u64, socket: TcpStream, house: &House, shutdown: CancellationToken) {
    // Answers are small and somebody waits for each of them.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps the system's own pace");
    }
    let mut connection = Connection {
        house,
        socket,
        session: Session::new(id, house),
        inbound: Inbound::new(house.options.max_command_bytes),
        input: BytesMut::new(),
        output: BytesMut::new(),
        position: 0,
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        ended = connection.run() => {
            if let Err(error) = ended {
                tracing::debug!(client = id, %error, "a connection to the embedded store broke");
            }
        }
    }
}

struct Connection<'a> {
    house: &'a House,
    socket: TcpStream,
    session: Session,
    inbound: Inbound,
    input: BytesMut,
    output: BytesMut,
    /// Up to where the log has to be durable before the output may leave.
    position: Position,
}

/// Takes a waiting read off the list when its connection is dropped.
struct Ticket<'a> {
    house: &'a House,
    number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let now = now_ms();
        self.house.store.lock().leave_blocked(self.number, now);
    }
}

impl Connection<'_> {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            if !self.run_all().await? {
                return Ok(());
            }
            if self.input.is_empty() && self.input.capacity() > KEPT {
                self.input = BytesMut::new();
            }
            self.input.reserve(READ);
            if self.socket.read_buf(&mut self.input).await? == 0 {
                return Ok(());
            }
        }
    }

    /// Runs every command that has wholly arrived, and sends the answers. Tells whether to go on.
    async fn run_all(&mut self) -> io::Result<bool> {
        loop {
            match self.inbound.next(&mut self.input, self.session.known) {
                Ok(None) => break,
                Ok(Some(words)) => {
                    if !self.run_one(words).await? {
                        self.flush().await?;
                        return Ok(false);
                    }
                }
                Err(error) => {
                    self.answer(Reply::Error(error.0.into()))?;
                    self.flush().await?;
                    return Ok(false);
                }
            }
            if self.output.len() >= WRITE {
                self.flush().await?;
            }
        }
        self.flush().await?;
        Ok(true)
    }

    async fn run_one(&mut self, words: Vec<Bytes>) -> io::Result<bool> {
        let spec = match table::find(&words) {
            Ok(spec) => spec,
            Err(reply) => {
                // A browser that was talked into sending a request here gets nothing done by it.
                let web = words.first().is_some_and(|name| {
                    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:")
                });
                self.answer(reply)?;
                return Ok(!web);
            }
        };
        if !self.session.known
            && !matches!(
                spec.meaning,
                Meaning::Session(
                    table::Session::Auth | table::Session::Hello | table::Session::Quit
                )
            )
        {
            self.answer(Reply::Error("NOAUTH Authentication required.".into()))?;
            return Ok(true);
        }
        match spec.meaning {
            Meaning::Session(about) => match self.session.run(about, &words, self.house) {
                Next::Go(reply) => self.answer(reply).map(|()| true),
                Next::Leave(reply) => self.answer(reply).map(|()| false),
            },
            Meaning::Data(parse) => {
                let mut arguments = Arguments::new(words);
                for _ in spec.name.split('|') {
                    arguments.next();
                }
                match parse(arguments) {
                    Ok(command) => self.carry_out(command).await,
                    Err(refusal) => self.answer(refusal.into()).map(|()| true),
                }
            }
        }
    }

    async fn carry_out(&mut self, command: Command) -> io::Result<bool> {
        let protocol = self.session.protocol;
        // Its own deliveries needn't be durable: after a crash they are made again.
        let delivers = matches!(command, Command::Read(_));
        let ((outcome, before), after) = self.house.store.run(|state, now| {
            let before = state.position();
            (execute(state, command, protocol, now), before)
        });
        self.position = self.position.max(if delivers { before } else { after });
        match outcome {
            Outcome::Answer(reply) => self.answer(reply).map(|()| true),
            Outcome::Waits {
                ticket,
                served,
                timeout,
            } => self.wait(ticket, served, timeout).await,
        }
    }

    /// Waits until a read is served, its time is over, or its client leaves.
    async fn wait(
        &mut self,
        number: u64,
        served: oneshot::Receiver<Served>,
        timeout: u64,
    ) -> io::Result<bool> {
        let ticket = Ticket {
            house: self.house,
            number,
        };
        self.flush().await?;
        let over = async {
            if timeout == 0 {
                std::future::pending().await
            } else {
                tokio::time::sleep(Duration::from_millis(timeout)).await;
            }
        };
        tokio::pin!(served, over);
        loop {
            tokio::select! {
                biased;
                served = &mut served => return self.served(served.ok()),
                () = &mut over => break,
                read = self.socket.read_buf(&mut self.input), if self.input.len() < AHEAD => {
                    if read? == 0 {
                        return Ok(false);
                    }
                }
            }
        }
        // From here on nothing can be delivered; what was delivered just before still counts.
        drop(ticket);
        self.served(served.try_recv().ok())
    }

    fn served(&mut self, served: Option<Served>) -> io::Result<bool> {
        let reply = match served {
            None => Reply::NullArray,
            Some((result, position)) => {
                self.position = self.position.max(position);
                result.map_or_else(Reply::from, |streams| {
                    show::streamed(streams, self.session.protocol == Protocol::Three)
                })
            }
        };
        self.answer(reply).map(|()| true)
    }

    fn answer(&mut self, reply: Reply) -> io::Result<()> {
        reply
            .encode(self.session.protocol, &mut self.output)
            .map_err(|error| io::Error::other(error.to_string()))
    }

    /// Sends all answers, once what they tell is durable. While the client doesn't take them
    /// nothing more is read from it.
    async fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.house.store.durable(self.position).await {
            // Not one of the answers can be vouched for.
            self.output.clear();
            self.answer(Reply::Error(format!("MISCONF {error}").into()))?;
            self.socket.write_all(&self.output).await?;
            return Err(io::Error::other(error.to_string()));
        }
        self.socket.write_all(&self.output).await?;
        if self.output.capacity() > KEPT {
            self.output = BytesMut::new();
        } else {
            self.output.clear();
        }
        Ok(())
    }
}
