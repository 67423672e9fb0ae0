//! What no single value can know: values that contradict each other, and values that only a
//! restart can change.

use super::{Config, Store};

/// A value that can't be meant, or can't beside another.
pub(super) struct Contradiction {
    /// The key to be shown.
    pub(super) key: &'static [&'static str],
    pub(super) what: String,
    pub(super) hint: &'static str,
}

pub(super) fn contradictions(config: &Config) -> Vec<Contradiction> {
    let mut found = Vec::new();
    let folder = config.data_dir.as_os_str().as_encoded_bytes();
    if folder.is_empty() || folder.contains(&0) {
        found.push(Contradiction {
            key: &["data_dir"],
            what: "no folder can have this name".to_owned(),
            hint: "name a folder, or leave it out",
        });
    }
    let embedded = &config.embedded;
    if !embedded.listen.ip().is_loopback() && embedded.password.is_none() {
        found.push(Contradiction {
            key: &["embedded", "listen"],
            what: format!(
                "{} can be reached from other machines, and there is no password",
                embedded.listen
            ),
            hint: "set embedded.password, or listen on 127.0.0.1",
        });
    }
    let same_place = embedded.listen == config.admin.listen && embedded.listen.port() != 0;
    if config.relay.store == Store::Embedded && same_place {
        found.push(Contradiction {
            key: &["admin", "listen"],
            what: format!(
                "{} is where the embedded store listens",
                config.admin.listen
            ),
            hint: "give one of them another port",
        });
    }
    if config
        .relay
        .administrators
        .contains(&config.relay.namespace)
    {
        found.push(Contradiction {
            key: &["relay", "administrators"],
            what: format!("{} is the daemon itself", config.relay.namespace.site()),
            hint: "name the sites of services",
        });
    }
    found
}

/// Keys whose value differs and is only read at start.
pub(crate) fn needs_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let compared = [
        ("data_dir", old.data_dir == new.data_dir),
        ("node", old.node == new.node),
        ("log.format", old.log.format == new.log.format),
        ("admin", old.admin == new.admin),
        ("embedded", old.embedded == new.embedded),
        ("relay.store", old.relay.store == new.relay.store),
        (
            "relay.namespace",
            old.relay.namespace == new.relay.namespace,
        ),
        ("relay.keyspace", old.relay.keyspace == new.relay.keyspace),
        (
            "relay.hash_tags",
            old.relay.hash_tags == new.relay.hash_tags,
        ),
        ("relay.group", old.relay.group == new.relay.group),
        (
            "relay.environments",
            old.relay.environments == new.relay.environments,
        ),
        (
            "traces.endpoint",
            old.traces.endpoint == new.traces.endpoint,
        ),
        ("traces.headers", old.traces.headers == new.traces.headers),
        ("traces.service", old.traces.service == new.traces.service),
        (
            "relay.max_entry_bytes",
            old.relay.max_entry_bytes == new.relay.max_entry_bytes,
        ),
        (
            "relay.max_fields",
            old.relay.max_fields == new.relay.max_fields,
        ),
    ];
    compared
        .into_iter()
        .filter(|(_, same)| !same)
        .map(|(key, _)| key)
        .collect()
}
