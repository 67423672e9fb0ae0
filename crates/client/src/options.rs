//! How a client connects.

use std::time::Duration;

use crate::client::Client;
use crate::error::ClientError;

/// Collects what a [`Client`] is to be; the defaults are those of the daemon.
#[derive(Debug, Clone)]
pub struct Builder {
    pub(crate) namespace: String,
    pub(crate) keyspace: String,
    pub(crate) hash_tags: bool,
    pub(crate) node: Option<String>,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) max_waiting: usize,
    pub(crate) register: bool,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            namespace: "gnode".to_owned(),
            keyspace: "gnode".to_owned(),
            hash_tags: false,
            node: None,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(5),
            // A waiting call holds a few hundred bytes: a megabyte or two when all are taken.
            max_waiting: 4096,
            register: true,
        }
    }
}

impl Builder {
    /// The topology namespace of the daemon; `gnode` unless changed.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Builder {
        self.namespace = namespace.into();
        self
    }

    /// The word in the middle of every key; `gnode` unless changed.
    #[must_use]
    pub fn keyspace(mut self, keyspace: impl Into<String>) -> Builder {
        self.keyspace = keyspace.into();
        self
    }

    /// Whether the first part of a key stands in braces, as on a cluster.
    #[must_use]
    pub fn hash_tags(mut self, hash_tags: bool) -> Builder {
        self.hash_tags = hash_tags;
        self
    }

    /// The name of this process within its site; random unless given.
    #[must_use]
    pub fn node(mut self, node: impl Into<String>) -> Builder {
        self.node = Some(node.into());
        self
    }

    /// How long opening a connection may take; 5 s unless changed.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Builder {
        self.connect_timeout = timeout;
        self
    }

    /// How long the store may take to answer before its connection counts as broken; 5 s unless
    /// changed.
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Builder {
        self.response_timeout = timeout;
        self
    }

    /// The most calls that wait for their reply at once; 4096 unless changed. A call beyond them
    /// waits for its turn within its own time.
    #[must_use]
    pub fn max_waiting(mut self, calls: usize) -> Builder {
        self.max_waiting = calls.clamp(1, 1 << 20);
        self
    }

    /// Whether a site whose stream doesn't exist yet makes itself known to the daemon; yes unless
    /// changed.
    #[must_use]
    pub fn register(mut self, register: bool) -> Builder {
        self.register = register;
        self
    }

    /// Connects `site` in `environment` to the store at `url`.
    ///
    /// # Errors
    /// [`ClientError`]: a bad name or URL, or a store that can't be reached.
    pub async fn connect(
        self,
        url: &str,
        site: &str,
        environment: &str,
    ) -> Result<Client, ClientError> {
        Client::open(self, url, site, environment).await
    }
}
