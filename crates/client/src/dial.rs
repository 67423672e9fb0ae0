//! How a store's URL becomes a Redis client: the same options as the daemon's.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, TlsCertificates};

use crate::error::ClientError;

/// A Redis client for the URL of a store, as the daemon takes it: with `?ca=FILE` the store's
/// certificate is checked against the authorities in that PEM file alone. Nothing is connected yet.
///
/// # Errors
/// [`ClientError::Url`] where the URL can't be read, or the file can't be used.
pub async fn redis_client(url: &str) -> Result<redis::Client, ClientError> {
    let bad_url = |error: RedisError| ClientError::Url {
        reason: error.category().to_owned(),
    };
    let info = url.into_connection_info().map_err(bad_url)?;
    // Not in any default of the library, and worth 40 ms on every small write.
    let settings = info.tcp_settings().clone().set_nodelay(true);
    let info = info.set_tcp_settings(settings);
    if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        // Refused where the program has chosen one already, which then stays. Without any, the
        // library would panic.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    match authority(url) {
        Some(file) => trusting(info, &file?).await,
        None => redis::Client::open(info).map_err(bad_url),
    }
}

async fn trusting(info: ConnectionInfo, file: &str) -> Result<redis::Client, ClientError> {
    let wrong = |reason: String| ClientError::Url {
        reason: format!("the authority's certificate in {file}: {reason}"),
    };
    let pem = tokio::fs::read(file)
        .await
        .map_err(|error| wrong(error.to_string()))?;
    let certificates = TlsCertificates {
        client_tls: None,
        root_cert: Some(pem),
    };
    redis::Client::build_with_tls(info, certificates).map_err(|error| wrong(error.to_string()))
}

/// The file that `?ca=` names.
fn authority(url: &str) -> Option<Result<String, ClientError>> {
    let (_, query) = url.split_once('?')?;
    let written = query
        .split('&')
        .find_map(|option| option.strip_prefix("ca="))?;
    Some(decoded(written).ok_or_else(|| ClientError::Url {
        reason: "the file in `?ca=` isn't well-formed".to_owned(),
    }))
}

/// The text, with `%` and two hexadecimal digits as the byte that they mean.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || u8::try_from(char::from(rest.next()?).to_digit(16)?).ok();
                digit()? << 4 | digit()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authoritys_file_is_found_whatever_its_name() {
        let file = |url: &str| authority(url).map(|file| file.ok());
        assert_eq!(file("rediss://h:1"), None);
        assert_eq!(file("rediss://h:1/0?protocol=resp3"), None);
        let named = |name: &str| Some(Some(name.to_owned()));
        assert_eq!(file("rediss://h:1?ca=/etc/ca.pem"), named("/etc/ca.pem"));
        assert_eq!(file("rediss://h?x=1&ca=a%20b%26%C3%B6"), named("a b&ö"));
        for broken in ["rediss://h?ca=", "rediss://h?ca=%2", "rediss://h?ca=%ff"] {
            assert_eq!(file(broken), Some(None), "{broken}");
        }
    }
}
