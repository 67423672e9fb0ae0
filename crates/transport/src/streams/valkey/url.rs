//! Where a store is, as it is written in a configuration.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

const DEFAULT_PORT: u16 = 6379;

/// How long a write on a cluster waits for a replica to have it.
const DEFAULT_CONFIRM: Duration = Duration::from_secs(1);
/// A longer wait would hold up everything else on that node.
const LONGEST_CONFIRM_MS: u64 = 4_000;

/// The address of a store and the credentials for it. Neither its `Display` nor its `Debug` shows
/// the password.
///
/// | written | meaning |
/// |---|---|
/// | `redis://user:password@host:port/db` | TCP; `valkey://` means the same |
/// | `rediss://…?ca=FILE` | TLS, by the system's authorities, or only by those in `FILE`; also `valkeys://` |
/// | `unix://user:password@/path?db=1` | a Unix socket; also `redis+unix://` |
/// | `redis+cluster://host1,host2` | a cluster, found through any of these nodes; also `valkey+cluster://` |
/// | `rediss+cluster://host1,host2?ca=FILE` | the same over TLS |
/// | `…?confirm=MS` | how long a write on a cluster waits for a replica to have it; 1000 where it is left out, 0 never waits |
///
/// Everything but the host may be left out. What isn't a letter or digit in a user name, password
/// or path may be written as `%` and two hexadecimal digits, and `/ : @ ? # %` in a user name or
/// password must be.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    pub(crate) endpoint: Endpoint,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) database: u32,
}

/// What to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Tcp(Host),
    Tls {
        host: Host,
        authority: Option<PathBuf>,
    },
    Unix(PathBuf),
    Cluster {
        seeds: Vec<Host>,
        tls: Option<Option<PathBuf>>,
        confirm: Duration,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

/// What is wrong with the text of a [`StoreUrl`]. It names the part and never repeats the text,
/// which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store URL can't be read: {0}")]
pub struct StoreUrlError(String);

fn wrong<T>(what: impl Into<String>) -> Result<T, StoreUrlError> {
    Err(StoreUrlError(what.into()))
}

impl StoreUrl {
    /// Whether it is the URL of a cluster.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        matches!(self.endpoint, Endpoint::Cluster { .. })
    }
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<StoreUrl, StoreUrlError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return wrong("it has no `://`; write for example redis://127.0.0.1:6379");
        };
        if rest.contains('#') {
            return wrong("`#` has no meaning in it; in a password write it as %23");
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        let (userinfo, hosts) = match authority.rsplit_once('@') {
            Some((userinfo, hosts)) => (Some(userinfo), hosts),
            None => (None, authority),
        };
        let mut url = StoreUrl {
            endpoint: Endpoint::Unix(PathBuf::new()),
            credentials: userinfo.map(credentials).transpose()?.flatten(),
            database: 0,
        };
        match scheme {
            "redis" | "valkey" => {
                url.endpoint = Endpoint::Tcp(host(hosts)?);
                url.database = database_in_path(path)?;
                options(query, &[])?;
            }
            "rediss" | "valkeys" => {
                let options = options(query, &["ca"])?;
                let authority = options
                    .into_iter()
                    .next()
                    .map(|(_, file)| PathBuf::from(file));
                url.endpoint = Endpoint::Tls {
                    host: host(hosts)?,
                    authority,
                };
                url.database = database_in_path(path)?;
            }
            "unix" | "redis+unix" | "valkey+unix" => {
                if !hosts.is_empty() || path.len() < 2 {
                    return wrong(
                        "a Unix socket is written with three slashes, as unix:///run/redis.sock",
                    );
                }
                url.endpoint = Endpoint::Unix(PathBuf::from(decoded(path, "the path")?));
                for (_, value) in options(query, &["db"])? {
                    url.database = database(&value)?;
                }
            }
            "redis+cluster" | "valkey+cluster" | "rediss+cluster" | "valkeys+cluster" => {
                let encrypted = matches!(scheme, "rediss+cluster" | "valkeys+cluster");
                let known: &[&str] = if encrypted {
                    &["ca", "confirm"]
                } else {
                    &["confirm"]
                };
                let (mut tls, mut confirm) = (encrypted.then_some(None), DEFAULT_CONFIRM);
                for (name, value) in options(query, known)? {
                    match name.as_str() {
                        "ca" => tls = Some(Some(PathBuf::from(value))),
                        _ => confirm = confirmation(&value)?,
                    }
                }
                let seeds: Result<Vec<Host>, StoreUrlError> = hosts.split(',').map(host).collect();
                url.endpoint = Endpoint::Cluster {
                    seeds: seeds?,
                    tls,
                    confirm,
                };
                if database_in_path(path)? != 0 {
                    return wrong("a cluster has only database 0");
                }
            }
            _ => {
                return wrong(
                    "its scheme is none of redis, rediss, valkey, valkeys, unix, redis+unix, redis+cluster, rediss+cluster",
                );
            }
        }
        Ok(url)
    }
}

fn credentials(userinfo: &str) -> Result<Option<Credentials>, StoreUrlError> {
    if userinfo.is_empty() {
        return Ok(None);
    }
    let Some((user, password)) = userinfo.split_once(':') else {
        return wrong(
            "before the `@` there is a user name without a password; write user:password@ or :password@",
        );
    };
    let user = decoded(user, "the user name")?;
    let password = decoded(password, "the password")?;
    Ok(Some(Credentials {
        user: (!user.is_empty()).then_some(user),
        password,
    }))
}

pub(crate) fn host(text: &str) -> Result<Host, StoreUrlError> {
    let (name, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((name, rest)) = rest.split_once(']') else {
            return wrong("the address in brackets has no closing `]`");
        };
        match rest.strip_prefix(':') {
            Some(port) => (name, Some(port)),
            None if rest.is_empty() => (name, None),
            None => return wrong("after the `]` only a port may follow"),
        }
    } else {
        match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        }
    };
    if name.is_empty() {
        return wrong("it has no host; write for example redis://127.0.0.1:6379");
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => match port.parse() {
            Ok(port) if port != 0 => port,
            _ => {
                return wrong(
                    "the port isn't a number from 1 to 65535 (`/` and `:` in a password are written %2F and %3A)",
                );
            }
        },
    };
    Ok(Host {
        name: decoded(name, "the host")?,
        port,
    })
}

fn database_in_path(path: &str) -> Result<u32, StoreUrlError> {
    match path.strip_prefix('/').unwrap_or(path) {
        "" => Ok(0),
        number => database(number),
    }
}

fn database(text: &str) -> Result<u32, StoreUrlError> {
    match text.parse() {
        Ok(number) if number <= i32::MAX.unsigned_abs() => Ok(number),
        _ => wrong("the database isn't a whole number (`/` in a password is written %2F)"),
    }
}

fn confirmation(text: &str) -> Result<Duration, StoreUrlError> {
    match text.parse() {
        Ok(ms) if ms <= LONGEST_CONFIRM_MS => Ok(Duration::from_millis(ms)),
        _ => wrong("the option `confirm` isn't a number of milliseconds from 0 to 4000"),
    }
}

fn options(query: &str, known: &[&str]) -> Result<Vec<(String, String)>, StoreUrlError> {
    let mut found: Vec<(String, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(name) = known.iter().find(|known| **known == name) else {
            return wrong(match known {
                [] => {
                    "after the `?` stands an option, and with this scheme there are none".to_owned()
                }
                known => format!(
                    "after the `?` stands an option that isn't `{}`",
                    known.join("`, `")
                ),
            });
        };
        if value.is_empty() || found.iter().any(|(before, _)| before == name) {
            return wrong(format!("the option `{name}` is empty or written twice"));
        }
        found.push(((*name).to_owned(), decoded(value, "an option")?));
    }
    Ok(found)
}

fn decoded(text: &str, part: &str) -> Result<String, StoreUrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| {
            byte.and_then(|byte| char::from(byte).to_digit(16))
                .and_then(|d| u8::try_from(d).ok())
        };
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
            return wrong(format!(
                "in {part} a `%` isn't followed by two hexadecimal digits"
            ));
        };
        bytes.push(high << 4 | low);
    }
    String::from_utf8(bytes).or_else(|_| wrong(format!("{part} isn't UTF-8 when decoded")))
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.endpoint {
            Endpoint::Tcp(_) => "redis://",
            Endpoint::Tls { .. } => "rediss://",
            Endpoint::Unix(_) => "unix://",
            Endpoint::Cluster { tls: None, .. } => "redis+cluster://",
            Endpoint::Cluster { tls: Some(_), .. } => "rediss+cluster://",
        })?;
        if let Some(credentials) = &self.credentials {
            write!(
                f,
                "{}:***@",
                credentials.user.as_deref().unwrap_or_default()
            )?;
        }
        match &self.endpoint {
            Endpoint::Tcp(host) | Endpoint::Tls { host, .. } => write!(f, "{host}")?,
            Endpoint::Unix(path) => write!(f, "{}", path.display())?,
            Endpoint::Cluster { seeds, .. } => {
                let hosts: Vec<String> = seeds.iter().map(Host::to_string).collect();
                f.write_str(&hosts.join(","))?;
            }
        }
        match &self.endpoint {
            _ if self.database == 0 => Ok(()),
            Endpoint::Unix(_) => write!(f, "?db={}", self.database),
            _ => write!(f, "/{}", self.database),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> StoreUrl {
        text.parse().unwrap()
    }

    fn tcp(name: &str, port: u16) -> Endpoint {
        Endpoint::Tcp(Host {
            name: name.to_owned(),
            port,
        })
    }

    #[test]
    fn every_part_is_read() {
        let url = parsed("redis://al%40ice:p%3Aw%2F%25@db.example:7000/3");
        assert_eq!(url.endpoint, tcp("db.example", 7000));
        let credentials = url.credentials.unwrap();
        assert_eq!(credentials.user.as_deref(), Some("al@ice"));
        assert_eq!(credentials.password, "p:w/%");
        assert_eq!(url.database, 3);
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        for text in [
            "redis://h",
            "valkey://h",
            "redis://h/",
            "redis://@h:6379",
            "redis://h:6379/0",
        ] {
            assert_eq!(parsed(text).endpoint, tcp("h", 6379), "{text}");
            assert!(parsed(text).credentials.is_none(), "{text}");
            assert_eq!(parsed(text).database, 0, "{text}");
        }
        assert_eq!(parsed("redis://:word@h").credentials.unwrap().user, None);
        assert_eq!(parsed("redis://[::1]:7").endpoint, tcp("::1", 7));
    }

    #[test]
    fn tls_may_name_an_authority() {
        let host = || Host {
            name: "h".to_owned(),
            port: 6379,
        };
        assert_eq!(
            parsed("rediss://h").endpoint,
            Endpoint::Tls {
                host: host(),
                authority: None
            }
        );
        let authority = Some(PathBuf::from("/etc/my ca.pem"));
        assert_eq!(
            parsed("valkeys://h?ca=/etc/my%20ca.pem").endpoint,
            Endpoint::Tls {
                host: host(),
                authority
            }
        );
    }

    #[test]
    fn a_unix_socket_has_a_path_and_credentials() {
        let url = parsed("unix://u:p@/run/a%20b.sock?db=2");
        assert_eq!(url.endpoint, Endpoint::Unix(PathBuf::from("/run/a b.sock")));
        assert_eq!(
            (url.database, url.credentials.unwrap().password.as_str()),
            (2, "p")
        );
        assert_eq!(
            parsed("redis+unix:///s").endpoint,
            Endpoint::Unix(PathBuf::from("/s"))
        );
    }

    #[test]
    fn a_cluster_has_several_hosts() {
        let hosts = vec![
            Host {
                name: "a".to_owned(),
                port: 6379,
            },
            Host {
                name: "b".to_owned(),
                port: 7,
            },
        ];
        assert_eq!(
            parsed("redis+cluster://a,b:7").endpoint,
            Endpoint::Cluster {
                seeds: hosts,
                tls: None,
                confirm: DEFAULT_CONFIRM
            }
        );
        let Endpoint::Cluster { tls, confirm, .. } =
            parsed("rediss+cluster://a?ca=/x&confirm=0").endpoint
        else {
            panic!("a cluster");
        };
        assert_eq!(
            (tls, confirm),
            (Some(Some(PathBuf::from("/x"))), Duration::ZERO)
        );
    }

    #[test]
    fn what_is_wrong_is_named_and_the_text_is_not_repeated() {
        for (text, part) in [
            ("s3cret", "://"),
            ("http://s3cret", "scheme"),
            ("redis://", "host"),
            ("redis://s3cret@h", "without a password"),
            ("redis://u:s3cret/x@h", "port"),
            ("redis://h:0", "port"),
            ("redis://h:66000", "port"),
            ("redis://h/s3cret", "database"),
            ("redis://u:s3cret%zz@h", "the password"),
            ("redis://u:s3cret%ff@h", "the password"),
            ("redis://u:s3cret#@h", "%23"),
            ("redis://h?s3cret=1", "option"),
            ("rediss://h?insecure=s3cret", "`ca`"),
            ("rediss://h?ca=", "`ca`"),
            ("unix://s3cret", "three slashes"),
            ("redis://[::1", "]"),
            ("redis+cluster://a,,b", "host"),
            ("redis+cluster://a/1", "cluster"),
            ("redis+cluster://a?ca=s3cret", "`confirm`"),
            ("redis+cluster://a?confirm=s3cret", "`confirm`"),
        ] {
            let error = text.parse::<StoreUrl>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("s3cret"), "{text}: {error}");
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        for (text, shown) in [
            ("redis://u:s3cret@h/2", "redis://u:***@h:6379/2"),
            ("valkeys://:s3cret@[::1]", "rediss://:***@[::1]:6379"),
            ("unix://u:s3cret@/s?db=1", "unix://u:***@/s?db=1"),
            ("redis+cluster://a,b:7", "redis+cluster://a:6379,b:7"),
        ] {
            assert_eq!(parsed(text).to_string(), shown);
            assert!(!format!("{:?}", parsed(text)).contains("s3cret"));
        }
    }
}
