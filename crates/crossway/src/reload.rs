//! Takes a changed configuration while the daemon runs, or refuses it and keeps the old one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::config::{self, Faults, Loaded};
use crate::logging::Logging;

/// Where a configuration comes from, so that it can be read again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Source {
    /// The file, where there is one.
    pub(crate) file: Option<PathBuf>,
    /// The folder for state that the command line names; it outdoes the file's.
    pub(crate) data_dir: Option<PathBuf>,
}

impl Source {
    /// Reads it, with the process's environment laid over it.
    ///
    /// # Errors
    /// [`Faults`].
    pub(crate) fn read(&self) -> Result<Loaded, Faults> {
        let mut loaded = config::load(self.file.as_deref(), std::env::vars_os())?;
        if let Some(data_dir) = &self.data_dir {
            loaded.config.data_dir.clone_from(data_dir);
        }
        Ok(loaded)
    }

    /// The files and folders that a configuration was read from.
    pub(crate) fn files(&self, loaded: &Loaded) -> Vec<PathBuf> {
        let relay = &loaded.config.relay;
        let named = relay.manifest.iter().chain(&relay.formats);
        let all = self.file.iter().chain(named).map(PathBuf::as_path);
        all.chain(loaded.formats.files())
            .map(Path::to_path_buf)
            .collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    result: Outcome,
}

/// How a reload went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types)] // These are the label's values as they are shown.
enum Outcome {
    applied,
    unchanged,
    refused,
}

/// Reads the configuration again when asked, and hands it on if it is sound.
pub(crate) struct Reload {
    source: Source,
    current: watch::Sender<Arc<Loaded>>,
    logging: Logging,
    counts: Family<Labels, Counter>,
}

impl Reload {
    /// A reloader whose readers begin with `loaded`.
    pub(crate) fn new(
        source: Source,
        loaded: Loaded,
        logging: Logging,
        registry: &mut Registry,
    ) -> Reload {
        let counts = Family::<Labels, Counter>::default();
        for result in [Outcome::applied, Outcome::unchanged, Outcome::refused] {
            drop(counts.get_or_create(&Labels { result }));
        }
        registry.register(
            "crossway_config_reloads",
            "Times that the configuration was read again, by what came of it",
            counts.clone(),
        );
        let (current, _) = watch::channel(Arc::new(loaded));
        Reload {
            source,
            current,
            logging,
            counts,
        }
    }

    /// The configuration as it stands, and each that follows.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Loaded>> {
        self.current.subscribe()
    }

    /// The files and folders that the configuration in effect was read from.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.source.files(&self.current.borrow())
    }

    /// Reads the configuration again. What is wrong with it is logged, and the old one stays.
    pub(crate) async fn reload(&self) {
        let source = self.source.clone();
        let read = tokio::task::spawn_blocking(move || source.read()).await;
        let result = match read {
            Ok(Ok(loaded)) => self.apply(loaded),
            Ok(Err(faults)) => {
                for fault in faults.each() {
                    tracing::error!(%fault, "the new configuration is refused, the old one stays");
                }
                Outcome::refused
            }
            Err(error) => {
                tracing::error!(%error, "the configuration couldn't be read again");
                Outcome::refused
            }
        };
        self.counts.get_or_create(&Labels { result }).inc();
    }

    fn apply(&self, loaded: Loaded) -> Outcome {
        let old = self.current.borrow().clone();
        if *old == loaded {
            tracing::info!("the configuration was read again; nothing changed");
            return Outcome::unchanged;
        }
        let later = config::needs_restart(&old.config, &loaded.config);
        if !later.is_empty() {
            tracing::warn!(
                keys = later.join(", "),
                "these changes take effect with the next start"
            );
        }
        self.logging.set_level(&loaded.config.log.level);
        self.current.send_replace(Arc::new(loaded));
        tracing::info!("the configuration was read again and is in effect");
        Outcome::applied
    }
}
