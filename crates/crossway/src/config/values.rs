//! Values of the configuration that check themselves when they are parsed.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crossway_core::address::{Environment, NameError, SiteId};
use crossway_transport::streams::valkey;
use schemars::JsonSchema;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $inner:ident, $get:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schemars(with = "String", extend("pattern" = "^[A-Za-z0-9._-]{1,128}$"))]
        pub(crate) struct $name($inner);

        impl $name {
            pub(crate) fn $get(&self) -> &$inner {
                &self.0
            }

            /// A name that stands in this program's own text.
            #[allow(clippy::expect_used)] // Never from outside; each is made by a test of the defaults.
            pub(super) fn literal(name: &'static str) -> $name {
                $name($inner::parse(name).expect("a name in the source is a name"))
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.to_string()
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<$name, NameError> {
                $inner::parse(&text).map($name)
            }
        }
    )*};
}

names! {
    /// A name of 1 to 128 letters, digits, `-`, `_` and `.`.
    SiteName, SiteId, site;
    /// A name of 1 to 128 letters, digits, `-`, `_` and `.`.
    EnvironmentName, Environment, environment;
}

/// Text that is never shown.
#[derive(Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub(crate) struct Secret(String);

impl Secret {
    /// The secret itself. What calls this must not log it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"***\"")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        deserializer.deserialize_str(SecretVisitor)
    }
}

/// Refuses without repeating what it refuses, as the usual messages would.
struct SecretVisitor;

const NOT_TEXT: &str = "a password is text in quotes, and this isn't";

impl Visitor<'_> for SecretVisitor {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text in quotes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Secret, E> {
        if text.is_empty() {
            return Err(E::custom(
                "a password can't be empty; leave the key out for none",
            ));
        }
        Ok(Secret(text.to_owned()))
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Secret, E> {
        Err(E::custom(NOT_TEXT))
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Secret, E> {
        Err(E::custom(NOT_TEXT))
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Secret, E> {
        Err(E::custom(NOT_TEXT))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Secret, E> {
        Err(E::custom(NOT_TEXT))
    }
}

/// A span of time, given in milliseconds: at least one, at most a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "u64", into = "u64")]
#[schemars(with = "u64", extend("minimum" = 1, "maximum" = A_DAY_MS))]
pub(crate) struct Milliseconds(Duration);

const A_DAY_MS: u64 = 24 * 60 * 60 * 1000;

impl Milliseconds {
    pub(super) const fn literal(ms: u64) -> Milliseconds {
        Milliseconds(Duration::from_millis(ms))
    }

    pub(crate) fn duration(self) -> Duration {
        self.0
    }
}

impl From<Milliseconds> for u64 {
    fn from(time: Milliseconds) -> u64 {
        u64::try_from(time.0.as_millis()).unwrap_or(A_DAY_MS)
    }
}

impl TryFrom<u64> for Milliseconds {
    type Error = String;

    fn try_from(ms: u64) -> Result<Milliseconds, String> {
        match ms {
            1..=A_DAY_MS => Ok(Milliseconds(Duration::from_millis(ms))),
            _ => Err(format!("{ms} ms isn't between 1 and {A_DAY_MS} (a day)")),
        }
    }
}

/// A whole number from 1 to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "u64", into = "u64")]
#[schemars(with = "u64", extend("minimum" = 1, "maximum" = MAX))]
pub(crate) struct Limit<const MAX: u64>(usize);

impl<const MAX: u64> Limit<MAX> {
    pub(super) const fn literal(number: usize) -> Limit<MAX> {
        Limit(number)
    }

    pub(crate) fn get(self) -> usize {
        self.0
    }
}

impl<const MAX: u64> From<Limit<MAX>> for u64 {
    fn from(limit: Limit<MAX>) -> u64 {
        u64::try_from(limit.0).unwrap_or(MAX)
    }
}

impl<const MAX: u64> TryFrom<u64> for Limit<MAX> {
    type Error = String;

    fn try_from(number: u64) -> Result<Limit<MAX>, String> {
        if !(1..=MAX).contains(&number) {
            return Err(format!("{number} isn't between 1 and {MAX}"));
        }
        usize::try_from(number)
            .map(Limit)
            .map_err(|_| format!("{number} is too much for this machine"))
    }
}

/// Which lines are logged.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub(crate) struct Filter(String);

impl Filter {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Filter {
    fn default() -> Filter {
        Filter("info".to_owned())
    }
}

impl From<Filter> for String {
    fn from(filter: Filter) -> String {
        filter.0
    }
}

impl TryFrom<String> for Filter {
    type Error = String;

    fn try_from(text: String) -> Result<Filter, String> {
        match tracing_subscriber::EnvFilter::builder().parse(&text) {
            Ok(_) if !text.trim().is_empty() => Ok(Filter(text)),
            _ => Err("a level is error, warn, info, debug or trace, with parts as `info,crossway_relay=debug`".to_owned()),
        }
    }
}

/// Where streams are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub(crate) enum Store {
    /// Inside the daemon.
    #[default]
    Embedded,
    /// On a server.
    Url(StoreUrl),
}

impl From<Store> for String {
    /// Without the login that a URL may hold.
    fn from(store: Store) -> String {
        match store {
            Store::Embedded => "embedded".to_owned(),
            Store::Url(url) => url.place,
        }
    }
}

impl TryFrom<String> for Store {
    type Error = UrlError;

    fn try_from(text: String) -> Result<Store, UrlError> {
        if text == "embedded" {
            Ok(Store::Embedded)
        } else {
            StoreUrl::parse(&text).map(Store::Url)
        }
    }
}

/// The text isn't the URL of a store. It isn't repeated, because it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; a store is `embedded` or a URL as redis://HOST:PORT, rediss://USER:PASSWORD@HOST:PORT, unix:///PATH or redis+cluster://HOST,HOST"
)]
pub(crate) struct UrlError(#[source] valkey::StoreUrlError);

/// The URL of a store. Only its place is ever shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoreUrl {
    url: String,
    place: String,
}

impl StoreUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`UrlError`] where no connection can be made from it.
    pub(crate) fn parse(url: &str) -> Result<StoreUrl, UrlError> {
        let store: valkey::StoreUrl = url.parse().map_err(UrlError)?;
        let shown = store.to_string();
        let place = shown.split_once("://").map_or(&*shown, |(_, rest)| rest);
        let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
        Ok(StoreUrl {
            url: url.to_owned(),
            place: place.to_owned(),
        })
    }

    /// As the store's adapter takes it.
    ///
    /// # Errors
    /// None for a URL that was read by [`StoreUrl::parse`].
    pub(crate) fn store(&self) -> Result<valkey::StoreUrl, valkey::StoreUrlError> {
        self.url.parse()
    }

    /// Whether it is the URL of a cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        self.store().is_ok_and(|url| url.is_cluster())
    }

    /// The embedded store at `listen`, for a program of the same machine.
    pub(super) fn local(listen: SocketAddr, password: Option<&Secret>) -> StoreUrl {
        let ip = match listen.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let place = SocketAddr::new(ip, listen.port()).to_string();
        let login = password
            .map(|password| format!(":{}@", percent_encode(password.expose())))
            .unwrap_or_default();
        StoreUrl {
            url: format!("redis://{login}{place}"),
            place,
        }
    }

    /// The whole URL, password and all. What calls this must not log it.
    pub(crate) fn expose(&self) -> &str {
        &self.url
    }

    /// Host and port, or the path of the socket.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.place, f)
    }
}

fn percent_encode(text: &str) -> String {
    text.bytes()
        .fold(String::with_capacity(text.len()), |mut encoded, byte| {
            if byte.is_ascii_alphanumeric() {
                encoded.push(char::from(byte));
            } else {
                encoded.push_str(&format!("%{byte:02X}"));
            }
            encoded
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::IntoConnectionInfo;

    #[test]
    fn a_password_with_any_bytes_survives_in_the_url() {
        let password = Secret("p@ss:w/ö rd%#?".to_owned());
        let url = StoreUrl::local("0.0.0.0:7000".parse().unwrap(), Some(&password));
        assert_eq!(url.place(), "127.0.0.1:7000");
        let info = url.expose().into_connection_info().unwrap();
        assert_eq!(info.redis_settings().password(), Some(password.expose()));
    }

    #[test]
    fn no_secret_is_shown() {
        let url = StoreUrl::parse("redis://me:hunter2@example.org:6379").unwrap();
        let shown = format!("{:?} {:?} {}", url, Secret("hunter2".into()), url.place());
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(!shown.contains("me:"), "{shown}");
        assert!(shown.contains("example.org:6379"), "{shown}");
        let refused = StoreUrl::parse("http://me:hunter2@example.org").unwrap_err();
        assert!(!refused.to_string().contains("hunter2"));
    }
}
