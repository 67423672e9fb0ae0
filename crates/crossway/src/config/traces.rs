//! `[traces]`: where spans of crossings are sent, and how many of them.

use std::fmt;

use axum::http::uri::{PathAndQuery, Uri};
use axum::http::{HeaderName, HeaderValue};
use crossway_core::trace::{Ratio, RatioError};
use schemars::JsonSchema;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

/// The path of OTLP over HTTP for traces.
const USUAL_PATH: &str = "/v1/traces";

/// Where spans of crossings are sent, over OTLP; nowhere unless an endpoint is given.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Traces {
    /// The URL of a collector that takes OTLP over HTTP, as `http://HOST:4318`; without a path it
    /// is sent to `/v1/traces`.
    pub(crate) endpoint: Option<Endpoint>,
    /// Headers that are sent along, each as `name: value`.
    #[serde(skip_serializing)]
    pub(crate) headers: Vec<Header>,
    /// The share of messages without a trace context that begin a trace, 0.0 to 1.0.
    pub(crate) ratio: Share,
    /// The name that this daemon has among the services of a trace.
    pub(crate) service: String,
}

impl Default for Traces {
    fn default() -> Traces {
        Traces {
            endpoint: None,
            headers: Vec::new(),
            ratio: Share(Ratio::ALL),
            service: "crossway".to_owned(),
        }
    }
}

/// A share, 0.0 to 1.0.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
#[schemars(with = "f64", extend("minimum" = 0.0, "maximum" = 1.0))]
pub(crate) struct Share(Ratio);

impl Share {
    pub(crate) fn ratio(self) -> Ratio {
        self.0
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> f64 {
        share.0.get()
    }
}

impl TryFrom<f64> for Share {
    type Error = RatioError;

    fn try_from(share: f64) -> Result<Share, RatioError> {
        Ratio::new(share).map(Share)
    }
}

/// The URL of a collector.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub(crate) struct Endpoint(Uri);

impl Endpoint {
    pub(crate) fn uri(&self) -> &Uri {
        &self.0
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }
}

impl From<Endpoint> for String {
    fn from(endpoint: Endpoint) -> String {
        endpoint.0.to_string()
    }
}

/// The text isn't the URL of a collector. It isn't repeated, because it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EndpointError {
    #[error("a collector is an http:// or https:// URL, as http://127.0.0.1:4318")]
    NoUrl,
    #[error("a collector's URL holds no login; set traces.headers for one")]
    Login,
}

impl TryFrom<String> for Endpoint {
    type Error = EndpointError;

    fn try_from(text: String) -> Result<Endpoint, EndpointError> {
        let uri: Uri = text.parse().map_err(|_| EndpointError::NoUrl)?;
        let mut parts = uri.into_parts();
        let scheme = parts.scheme.as_ref().map(|scheme| scheme.as_str());
        let (Some("http" | "https"), Some(authority)) = (scheme, &parts.authority) else {
            return Err(EndpointError::NoUrl);
        };
        if authority.as_str().contains('@') {
            return Err(EndpointError::Login);
        }
        if authority.host().is_empty() {
            return Err(EndpointError::NoUrl);
        }
        if parts.path_and_query.as_ref().is_none_or(|path| path == "/") {
            parts.path_and_query = Some(PathAndQuery::from_static(USUAL_PATH));
        }
        Uri::from_parts(parts)
            .map(Endpoint)
            .map_err(|_| EndpointError::NoUrl)
    }
}

/// A header, whose value is never shown.
#[derive(Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String", extend("pattern" = "^[^: ]+:.+$"))]
pub(crate) struct Header {
    name: HeaderName,
    value: HeaderValue,
}

impl Header {
    pub(crate) fn name(&self) -> &HeaderName {
        &self.name
    }

    /// The value, marked as one that isn't to be shown.
    pub(crate) fn value(&self) -> &HeaderValue {
        &self.value
    }

    fn parse(text: &str) -> Option<Header> {
        let (name, value) = text.split_once(':')?;
        let name: HeaderName = name.trim().parse().ok()?;
        let mut value = HeaderValue::from_str(value.trim()).ok()?;
        value.set_sensitive(true);
        Some(Header { name, value })
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}: ***\"", self.name)
    }
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Header, D::Error> {
        deserializer.deserialize_str(HeaderVisitor)
    }
}

/// Refuses without repeating what it refuses.
struct HeaderVisitor;

impl Visitor<'_> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text in quotes, as \"name: value\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Header, E> {
        Header::parse(text)
            .ok_or_else(|| E::custom("a header is written \"name: value\", and this isn't"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Result<String, EndpointError> {
        Endpoint::try_from(text.to_owned()).map(String::from)
    }

    #[test]
    fn a_collector_without_a_path_is_asked_at_the_usual_one() {
        let usual = "http://localhost:4318/v1/traces".to_owned();
        assert_eq!(endpoint("http://localhost:4318"), Ok(usual.clone()));
        assert_eq!(endpoint("http://localhost:4318/"), Ok(usual));
        let own = "https://example.org/otlp/v1/traces?x=1".to_owned();
        assert_eq!(endpoint(&own), Ok(own.clone()));
    }

    #[test]
    fn what_is_no_collector_is_refused_and_never_repeated() {
        for text in [
            "",
            "localhost:4318",
            "grpc://localhost",
            "/v1/traces",
            "http:///x",
        ] {
            assert_eq!(endpoint(text), Err(EndpointError::NoUrl), "{text}");
        }
        let refused = endpoint("http://me:hunter2@example.org").unwrap_err();
        assert_eq!(refused, EndpointError::Login);
        assert!(!refused.to_string().contains("hunter2"));
    }

    #[test]
    fn a_headers_value_is_never_shown() {
        let header = Header::parse("Authorization: Bearer hunter2").unwrap();
        assert_eq!(header.name(), "authorization");
        assert_eq!(header.value(), "Bearer hunter2");
        let shown = format!("{header:?} {:?}", header.value());
        assert!(!shown.contains("hunter2"), "{shown}");
        for text in ["", "no colon", "a b: c", ": value", "name: line\nbreak"] {
            assert_eq!(Header::parse(text), None, "{text}");
        }
    }
}
