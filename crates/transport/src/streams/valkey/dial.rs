//! Sockets to the store: TCP, Unix or TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::url::{Credentials, Endpoint, Host, StoreUrl};
use crate::streams::StoreError;

/// How long a connection may take to be made, the name to be looked up and the certificates to be
/// exchanged included.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// What bytes can be read from and written to.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send + Sync {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + Sync> Socket for S {}

/// Makes sockets to one store.
pub(crate) struct Dialer {
    url: StoreUrl,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// The store's name in messages, without any secret.
    pub(crate) at: Arc<str>,
    /// Whether the server is expected to be part of a cluster.
    pub(crate) in_cluster: bool,
}

impl Dialer {
    /// For one node of a cluster; with a connector it is spoken to over TLS.
    pub(crate) fn of_node(
        host: &Host,
        credentials: Option<Credentials>,
        connector: Option<&TlsConnector>,
    ) -> Result<Dialer, StoreError> {
        let host = host.clone();
        let tls = match connector {
            Some(connector) => {
                let name = ServerName::try_from(host.name.clone()).map_err(|_| {
                    unreachable(&host.to_string(), "no certificate can have this name")
                })?;
                Some((connector.clone(), name))
            }
            None => None,
        };
        let endpoint = match &tls {
            Some(_) => Endpoint::Tls {
                host,
                authority: None,
            },
            None => Endpoint::Tcp(host),
        };
        let url = StoreUrl {
            endpoint,
            credentials,
            database: 0,
        };
        let at = url.to_string().into();
        Ok(Dialer {
            url,
            tls,
            at,
            in_cluster: true,
        })
    }

    /// Reads the certificates, where there are any to read.
    pub(crate) async fn new(url: StoreUrl) -> Result<Dialer, StoreError> {
        let at: Arc<str> = url.to_string().into();
        let tls = match &url.endpoint {
            Endpoint::Tls { host, authority } => {
                let name = ServerName::try_from(host.name.clone()).map_err(|_| {
                    unreachable(
                        &at,
                        format!(
                            "`{}` isn't a host name that a certificate can have",
                            host.name
                        ),
                    )
                })?;
                Some((connector(authority.clone(), &at).await?, name))
            }
            Endpoint::Cluster { .. } => {
                return Err(StoreError::Refused {
                    command: "HELLO",
                    key: at.to_string(),
                    reason: CLUSTER.to_owned(),
                });
            }
            Endpoint::Tcp(_) | Endpoint::Unix(_) => None,
        };
        Ok(Dialer {
            url,
            tls,
            at,
            in_cluster: false,
        })
    }

    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.url.credentials.as_ref()
    }

    pub(crate) fn database(&self) -> u32 {
        self.url.database
    }

    /// A new socket, on which nothing has been said yet.
    pub(crate) async fn dial(&self) -> Result<Box<dyn Socket>, StoreError> {
        match tokio::time::timeout(CONNECT_DEADLINE, self.connect()).await {
            Ok(Ok(socket)) => Ok(socket),
            Ok(Err(error)) => Err(unreachable(&self.at, error.to_string())),
            Err(_) => Err(unreachable(
                &self.at,
                format!("no connection within {CONNECT_DEADLINE:?}"),
            )),
        }
    }

    async fn connect(&self) -> std::io::Result<Box<dyn Socket>> {
        match &self.url.endpoint {
            Endpoint::Tcp(host) => Ok(Box::new(tcp(host).await?)),
            Endpoint::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Endpoint::Tls { host, .. } => match &self.tls {
                Some((connector, name)) => Ok(Box::new(
                    connector.connect(name.clone(), tcp(host).await?).await?,
                )),
                None => Err(std::io::Error::other("TLS wasn't set up")),
            },
            Endpoint::Cluster { .. } => Err(std::io::Error::other(CLUSTER)),
        }
    }
}

pub(crate) const CLUSTER: &str =
    "the store is a cluster, and is named as one: redis+cluster://HOST1,HOST2";

/// Reads the certificates of the authorities that are trusted.
pub(crate) async fn connector(
    authority: Option<PathBuf>,
    at: &str,
) -> Result<TlsConnector, StoreError> {
    let config = tokio::task::spawn_blocking(move || client_config(authority.as_deref()))
        .await
        .unwrap_or_else(|error| Err(error.to_string()))
        .map_err(|reason| unreachable(at, reason))?;
    Ok(TlsConnector::from(Arc::new(config)))
}

pub(crate) fn unreachable(at: &str, reason: impl Into<String>) -> StoreError {
    StoreError::Unreachable {
        at: at.to_owned(),
        reason: reason.into(),
    }
}

async fn tcp(host: &Host) -> std::io::Result<TcpStream> {
    let socket = TcpStream::connect((host.name.as_str(), host.port)).await?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Trusts the authority in the file alone, or else those that the system trusts.
fn client_config(authority: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match authority {
        Some(path) => {
            let wrong = |error: String| {
                format!("the authority's certificate in {}: {error}", path.display())
            };
            for certificate in
                CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?
            {
                let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
                roots
                    .add(certificate)
                    .map_err(|error| wrong(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(wrong("the file holds none".to_owned()));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err("this system trusts no authority; name one with `?ca=FILE`".to_owned());
            }
        }
    }
    // The provider is named here, so that nothing depends on what the process has installed.
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map(|builder| builder.with_root_certificates(roots).with_no_client_auth())
        .map_err(|error| error.to_string())
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dialer({})", self.at)
    }
}
