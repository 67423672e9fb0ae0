//! Everything that isn't hot, over one shared connection.
//!
//! One task owns the connection: it makes it, drives it, and makes it again when it breaks or
//! stops answering. Callers see its state and use what it made.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, ProtocolVersion, RedisConnectionInfo,
    RedisError, Value,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::backoff::{Backoff, spread};
use super::connection::ANSWER_DEADLINE;
use super::dial::{CONNECT_DEADLINE, Dialer, unreachable};
use super::url::Credentials;
use crate::streams::StoreError;

/// How long a call waits for a connection that is being made.
const PATIENCE: Duration = Duration::from_secs(1);

/// The shared connection. The task that owns it ends with this value.
pub(crate) struct Cold {
    state: watch::Receiver<State>,
    /// The last connection that didn't answer.
    doubted: watch::Sender<u64>,
    at: Arc<str>,
    task: JoinHandle<()>,
}

#[derive(Clone)]
enum State {
    /// The connection, and how many there were before it.
    Up(MultiplexedConnection, u64),
    Down(String),
}

impl Cold {
    /// Starts connecting.
    pub(crate) fn start(dialer: Arc<Dialer>) -> Cold {
        let (sender, state) = watch::channel(State::Down("it isn't connected yet".to_owned()));
        let (doubted, doubts) = watch::channel(0);
        let at = Arc::clone(&dialer.at);
        let task = tokio::spawn(own(dialer, sender, doubts));
        Cold {
            state,
            doubted,
            at,
            task,
        }
    }

    /// Carries out a command about a key.
    pub(crate) async fn run(
        &self,
        command: &'static str,
        key: &str,
        cmd: &Cmd,
    ) -> Result<Value, StoreError> {
        let (mut connection, turn) = self.connection().await?;
        let answer = connection.send_packed_command(cmd).await;
        match answer.and_then(Value::extract_error) {
            Ok(value) => Ok(value),
            Err(error) => Err(self.failed(command, key, turn, &error)),
        }
    }

    /// Carries out several commands in one go.
    pub(crate) async fn run_all(
        &self,
        command: &'static str,
        key: &str,
        cmds: &Pipeline,
    ) -> Result<Vec<Value>, StoreError> {
        let (mut connection, turn) = self.connection().await?;
        let answers = connection.send_packed_commands(cmds, 0, cmds.len()).await;
        answers
            .and_then(|values| values.into_iter().map(Value::extract_error).collect())
            .map_err(|error| self.failed(command, key, turn, &error))
    }

    async fn connection(&self) -> Result<(MultiplexedConnection, u64), StoreError> {
        let mut state = self.state.clone();
        let up = timeout(
            PATIENCE,
            state.wait_for(|state| matches!(state, State::Up(..))),
        )
        .await;
        let state = match up {
            Ok(Ok(state)) => state.clone(),
            Ok(Err(_)) | Err(_) => self.state.borrow().clone(),
        };
        match state {
            State::Up(connection, turn) => Ok((connection, turn)),
            State::Down(reason) => Err(unreachable(&self.at, reason)),
        }
    }

    fn failed(
        &self,
        command: &'static str,
        key: &str,
        turn: u64,
        error: &RedisError,
    ) -> StoreError {
        match error.kind() {
            ErrorKind::Io => {
                if error.is_timeout() {
                    // It may be gone without having said so.
                    self.doubted.send_replace(turn);
                }
                unreachable(&self.at, error.to_string())
            }
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => protocol(&self.at, error),
            _ => StoreError::Refused {
                command,
                key: key.to_owned(),
                reason: words(error),
            },
        }
    }
}

impl Drop for Cold {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn protocol(at: &str, error: &RedisError) -> StoreError {
    StoreError::Protocol {
        at: at.to_owned(),
        reason: error.to_string(),
    }
}

/// The store's own words, prefix first.
fn words(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => error.to_string(),
    }
}

async fn own(dialer: Arc<Dialer>, state: watch::Sender<State>, mut doubts: watch::Receiver<u64>) {
    let mut backoff = Backoff::default();
    let info = greeting(&dialer);
    for turn in 1.. {
        let reason = match connect(&dialer, &info).await {
            Ok((connection, driver)) => {
                backoff.reset();
                if state.send(State::Up(connection, turn)).is_err() {
                    return;
                }
                tokio::select! {
                    () = driver => "the connection broke".to_owned(),
                    _ = doubts.wait_for(|doubted| *doubted == turn) => "it stopped answering".to_owned(),
                }
            }
            Err(error) => error.to_string(),
        };
        tracing::debug!(store = %dialer.at, %reason, "connecting to the store again");
        if state.send(State::Down(reason)).is_err() {
            return;
        }
        sleep(backoff.next(spread())).await;
    }
}

fn greeting(dialer: &Dialer) -> RedisConnectionInfo {
    let info = RedisConnectionInfo::default()
        .set_db(i64::from(dialer.database()))
        .set_protocol(ProtocolVersion::RESP2)
        .set_lib_name("crossway", env!("CARGO_PKG_VERSION"));
    match dialer.credentials() {
        Some(Credentials {
            user: Some(user),
            password,
        }) => info.set_username(user).set_password(password),
        Some(Credentials {
            user: None,
            password,
        }) => info.set_password(password),
        None => info,
    }
}

type Connected<Driver> = (MultiplexedConnection, Driver);

/// Gives the connection and what must be polled for it to work.
async fn connect<'i>(
    dialer: &Dialer,
    info: &'i RedisConnectionInfo,
) -> Result<Connected<impl Future<Output = ()> + use<'i>>, StoreError> {
    // The crate's own default of half a second would give up on a store that saves to disk.
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER_DEADLINE));
    let socket = dialer.dial().await?;
    match timeout(
        CONNECT_DEADLINE,
        MultiplexedConnection::new_with_config(info, socket, config),
    )
    .await
    {
        Ok(Ok(connected)) => Ok(connected),
        Ok(Err(error)) => Err(unreachable(&dialer.at, words(&error))),
        Err(_) => Err(unreachable(
            &dialer.at,
            format!("no greeting within {CONNECT_DEADLINE:?}"),
        )),
    }
}
