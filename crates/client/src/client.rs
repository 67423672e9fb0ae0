//! One site's end of the line.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Pipeline, Value};
use serde::Serialize;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::answers::{ANSWERS_PER_CALL, Answers, BLOCK, Waiting};
use crate::command::{Command, Failure};
use crate::entry::Answer;
use crate::error::{CallError, ClientError, StoreError};
use crate::link::{Link, WriteError};
use crate::names::Names;
use crate::options::Builder;
use crate::reply::Reply;
use crate::serve::{Serve, Serving};
use crate::store::{Store, entries};

/// Speaks for one site in one environment. Cheap to clone; all clones share two connections.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    link: Link,
    store: Store,
    names: Names,
    node: String,
    waiting: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
    limit: usize,
    tasks: TaskTracker,
    stop: CancellationToken,
    // The tasks end with the last clone.
    _guard: DropGuard,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("stream", &self.inner.names.stream)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Connects `site` in `environment` to the store at `url`, with everything else as usual.
    ///
    /// # Errors
    /// [`ClientError`]: a bad name or URL, or a store that can't be reached.
    pub async fn connect(url: &str, site: &str, environment: &str) -> Result<Client, ClientError> {
        Client::builder().connect(url, site, environment).await
    }

    /// For clients that differ from the usual.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) async fn open(
        options: Builder,
        url: &str,
        site: &str,
        environment: &str,
    ) -> Result<Client, ClientError> {
        let names = Names::new(
            site,
            environment,
            &options.namespace,
            &options.keyspace,
            options.hash_tags,
        )?;
        let node = match options.node {
            Some(node) => node,
            None => format!("node-{}", random_id()?.get(..8).unwrap_or_default()),
        };
        let store = Store::new(url, options.connect_timeout, options.response_timeout).await?;
        let writing = store.connect().await?;
        let reading = store.connect_to_wait(BLOCK).await?;

        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let (link, keep) = Link::new(store.clone(), writing, stop.clone());
        let guard = stop.clone().drop_guard();
        tasks.spawn(keep);

        let by = Instant::now() + options.response_timeout;
        let last = last_id(&link, &names, by).await?;
        if options.register && last.is_none() {
            register(&link, &names, environment, by).await?;
        }
        let (waiting, calls) = mpsc::channel(256);
        let answers = Answers {
            store: store.clone(),
            link: link.clone(),
            names: names.clone(),
            last: last.unwrap_or_else(|| "0-0".to_owned()),
            waiting: calls,
            stop: stop.clone(),
        };
        tasks.spawn(answers.run(reading));
        let inner = Inner {
            link,
            store,
            names,
            node,
            waiting,
            room: Arc::new(Semaphore::new(options.max_waiting)),
            limit: options.max_waiting,
            tasks,
            stop,
            _guard: guard,
        };
        Ok(Client {
            inner: Arc::new(inner),
        })
    }

    /// Asks `target` (a site, an entity, a stream key, or an address of another plane) to carry
    /// out `command`, and waits at most `timeout` for its reply. `params` is written as JSON; a
    /// `&RawValue` goes as it is.
    ///
    /// # Errors
    /// [`CallError`]; see there what each says about whether the command was carried out.
    pub async fn call(
        &self,
        target: &str,
        command: &str,
        params: &(impl Serialize + ?Sized),
        timeout: Duration,
    ) -> Result<Reply, CallError> {
        let by = Instant::now() + timeout;
        let mut sent = self.send("c", target, command, params, by).await?;
        loop {
            match sent.next(by).await? {
                Answer::Relayed => sent.relayed = true,
                Answer::Done { result, site, node } => {
                    return Ok(Reply {
                        text: result,
                        site,
                        node,
                    });
                }
                Answer::Failed { code, message } => {
                    return Err(CallError::Failed { code, message });
                }
                Answer::Refused { code, message } => {
                    return Err(CallError::Refused { code, message });
                }
            }
        }
    }

    /// Tells `target` something without asking for a reply; waits, at most as long as an ordinary
    /// write takes, until the daemon says that the target has it.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn notify(
        &self,
        target: &str,
        command: &str,
        params: &(impl Serialize + ?Sized),
    ) -> Result<(), CallError> {
        let by = Instant::now() + NOTIFY_TIMEOUT;
        let mut sent = self.send("e", target, command, params, by).await?;
        match sent.next(by).await? {
            Answer::Relayed | Answer::Done { .. } => Ok(()),
            Answer::Failed { code, message } => Err(CallError::Failed { code, message }),
            Answer::Refused { code, message } => Err(CallError::Refused { code, message }),
        }
    }

    /// Answers the commands that come to this site, with everything as usual; see
    /// [`Client::service`] for what can be chosen.
    ///
    /// # Errors
    /// [`ClientError`] when the group can't be made or the store can't be reached.
    pub async fn serve<H, F, R>(&self, handler: H) -> Result<Serving, ClientError>
    where
        H: Fn(Command) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Serialize + Send + 'static,
    {
        self.service().start(handler).await
    }

    /// A service of this site, to be adjusted and started.
    #[must_use]
    pub fn service(&self) -> Serve {
        Serve::new(
            self.inner.link.clone(),
            self.inner.store.clone(),
            self.inner.names.clone(),
            self.inner.node.clone(),
        )
    }

    /// The site that this client speaks for.
    #[must_use]
    pub fn site(&self) -> &str {
        self.inner.names.site.as_str()
    }

    /// The name of this process within its site.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.inner.node
    }

    /// Ends the client and waits until its connections are let go. Calls that still wait end with
    /// [`CallError::Closed`].
    pub async fn close(self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    async fn send(
        &self,
        kind: &str,
        target: &str,
        command: &str,
        params: &(impl Serialize + ?Sized),
        by: Instant,
    ) -> Result<Sent, CallError> {
        for (what, text) in [("the target", target), ("the command", command)] {
            if text.is_empty() {
                return Err(CallError::Input {
                    what,
                    reason: "it is empty".to_owned(),
                });
            }
        }
        let params = serde_json::to_string(params).map_err(|error| CallError::Input {
            what: "the parameters",
            reason: error.to_string(),
        })?;
        let room = tokio::time::timeout_at(by, self.inner.room.clone().acquire_owned()).await;
        let permit = match room {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(CallError::Closed),
            Err(_) => {
                return Err(CallError::Busy {
                    limit: self.inner.limit,
                });
            }
        };
        let id = random_id().map_err(CallError::Store)?;
        let (answers, receiver) = mpsc::channel(ANSWERS_PER_CALL);
        let waiting = Waiting {
            id: id.clone(),
            answers,
            permit,
        };
        match tokio::time::timeout_at(by, self.inner.waiting.send(waiting)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(CallError::Closed),
            Err(_) => return Err(CallError::Timeout { relayed: false }),
        }
        let mut write = Pipeline::new();
        write
            .cmd("XADD")
            .arg(&*self.inner.names.stream)
            .arg("*")
            .arg(&[
                ("t", kind),
                ("i", &id),
                ("c", command),
                ("p", &params),
                ("ss", self.inner.names.site.as_str()),
                ("sn", &self.inner.node),
                ("ts", &now_ms().to_string()),
                ("_rt", target),
            ]);
        let written = tokio::time::timeout_at(by, self.inner.link.run(&write, by)).await;
        let doubt = match written {
            Ok(Ok(_)) => None,
            Ok(Err(WriteError::Undone(error))) => return Err(CallError::Store(error)),
            // An answer may still come, and settles it.
            Ok(Err(WriteError::Unknown(error))) => Some(error),
            Err(_) => Some(
                self.inner
                    .store
                    .unreachable("no answer to the write in time"),
            ),
        };
        Ok(Sent {
            answers: receiver,
            doubt,
            relayed: false,
        })
    }
}

/// How long [`Client::notify`] waits for the daemon's word.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(10);

/// A command that was written, or may have been.
struct Sent {
    answers: mpsc::Receiver<Answer>,
    doubt: Option<StoreError>,
    relayed: bool,
}

impl Sent {
    async fn next(&mut self, by: Instant) -> Result<Answer, CallError> {
        match tokio::time::timeout_at(by, self.answers.recv()).await {
            Ok(Some(answer)) => {
                self.doubt = None;
                Ok(answer)
            }
            Ok(None) => Err(CallError::Closed),
            Err(_) => Err(match self.doubt.take() {
                Some(error) => CallError::Unknown(error),
                None => CallError::Timeout {
                    relayed: self.relayed,
                },
            }),
        }
    }
}

/// The id of the stream's last entry, `None` where there is no stream.
async fn last_id(link: &Link, names: &Names, by: Instant) -> Result<Option<String>, StoreError> {
    let mut ask = Pipeline::new();
    ask.cmd("EXISTS").arg(&*names.stream);
    ask.cmd("XREVRANGE")
        .arg(&*names.stream)
        .arg("+")
        .arg("-")
        .arg("COUNT")
        .arg(1);
    let mut values = link
        .run(&ask, by)
        .await
        .map_err(WriteError::into_store)?
        .into_iter();
    let exists = matches!(values.next(), Some(Value::Int(1)));
    let last = values
        .next()
        .map(entries)
        .and_then(|entries| entries.into_iter().next());
    Ok(match last {
        Some(entry) => Some(entry.id),
        None if exists => Some("0-0".to_owned()),
        None => None,
    })
}

/// Makes a site known whose stream doesn't exist yet. Nobody waits for the answer: the daemon
/// reads what was written before it knew the site.
async fn register(
    link: &Link,
    names: &Names,
    environment: &str,
    by: Instant,
) -> Result<(), StoreError> {
    let params =
        serde_json::json!({"id": names.site.as_str(), "environments": [environment], "metadata": {}})
            .to_string();
    let id = random_id()?;
    let mut write = Pipeline::new();
    write.cmd("XADD").arg(&*names.register).arg("*").arg(&[
        ("t", "c"),
        ("i", &id),
        ("c", "register_service"),
        ("p", &params),
        ("ss", names.site.as_str()),
        ("ts", &now_ms().to_string()),
    ]);
    match link.run(&write, by).await.map_err(WriteError::into_store) {
        // A user with its own keys alone can't register; an operator does it then.
        Err(StoreError::Refused { reason, .. }) if reason.starts_with("NOPERM") => Ok(()),
        written => written.map(drop),
    }
}

/// 128 random bits as hexadecimal digits.
pub(crate) fn random_id() -> Result<String, StoreError> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| StoreError::Unreachable {
        at: "the system's source of randomness".to_owned(),
        reason: error.to_string(),
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Milliseconds since the epoch; zero before it.
pub(crate) fn now_ms() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map(|since| since.as_millis())
        .unwrap_or_default()
}
