//! What the daemon says when it is up: what listens where, and what to type next.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use crate::config::{Config, Store};

/// A daemon that has taken its ports.
pub(super) struct Banner<'a> {
    pub(super) config: &'a Config,
    /// The configuration file, where there is one: the commands to type next need it too.
    pub(super) file: Option<&'a Path>,
    pub(super) admin: SocketAddr,
    /// Where the embedded store answers, where it is used.
    pub(super) embedded: Option<SocketAddr>,
}

impl Banner<'_> {
    pub(super) fn object(&self) -> Value {
        json!({
            "store": self.place(),
            "embedded": self.embedded.map(|at| at.to_string()),
            "admin": self.admin.to_string(),
        })
    }

    pub(super) fn text(&self) -> String {
        let kind = match &self.config.relay.store {
            Store::Embedded => format!("embedded, kept in {}", self.config.data_dir.display()),
            Store::Url(_) => "a server of its own".to_owned(),
        };
        let admin = format!("http://{}", self.admin);
        let listens = columns(&[
            ("store", format!("{}  {kind}", self.place())),
            ("admin", format!("{admin}  /healthz /readyz /metrics")),
        ]);
        let config = self
            .file
            .map(|file| format!(" --config {}", file.display()))
            .unwrap_or_default();
        let next = columns(&[
            (
                "a service",
                format!(
                    "python3 examples/python/echo_service.py --url {}",
                    self.url()
                ),
            ),
            (
                "ask it",
                format!("crossway send echo sum '[1, 2, 3]' --from shop{config}"),
            ),
            ("watch", format!("crossway tail{config}")),
        ]);
        let version = env!("CARGO_PKG_VERSION");
        format!(
            "crossway {version}\n\n{listens}\nNext, in another terminal:\n{next}\nCtrl-C ends it; a changed configuration is taken without a restart."
        )
    }

    fn place(&self) -> String {
        match self.embedded {
            Some(at) => at.to_string(),
            None => self.config.store_url().place().to_owned(),
        }
    }

    /// A URL to be typed; whoever types it knows the password.
    fn url(&self) -> String {
        match (&self.config.relay.store, &self.config.embedded.password) {
            (Store::Embedded, None) => format!("redis://{}", self.place()),
            (Store::Embedded, Some(_)) => format!("redis://:PASSWORD@{}", self.place()),
            (Store::Url(_), _) => "URL".to_owned(),
        }
    }
}

fn columns(lines: &[(&str, String)]) -> String {
    lines
        .iter()
        .map(|(name, rest)| format!("  {name:<10} {rest}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    #[test]
    fn what_to_type_next_fits_the_daemon_and_shows_no_password() {
        let mut config = Config::default();
        let at = "127.0.0.1:7000".parse().unwrap();
        let banner = |config: &Config, file| {
            Banner {
                config,
                file,
                admin: "127.0.0.1:9400".parse().unwrap(),
                embedded: Some(at),
            }
            .text()
        };
        let plain = banner(&config, None);
        assert!(plain.contains("--url redis://127.0.0.1:7000\n"), "{plain}");
        assert!(plain.contains("crossway tail\n"), "{plain}");

        config.embedded.password = Some(serde_json::from_str::<Secret>("\"hunter2\"").unwrap());
        let guarded = banner(&config, Some(Path::new("my.toml")));
        assert!(
            guarded.contains("redis://:PASSWORD@127.0.0.1:7000"),
            "{guarded}"
        );
        assert!(
            guarded.contains("crossway tail --config my.toml\n"),
            "{guarded}"
        );
        assert!(!guarded.contains("hunter2"), "{guarded}");
    }
}
