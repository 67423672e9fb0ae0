//! Logs: to standard error, for people or as JSON, with a level that a reload may change.

use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

use crate::config::{Filter, Log, LogFormat};

/// Changes the level while the program runs.
pub(crate) struct Logging(reload::Handle<EnvFilter, Registry>);

impl Logging {
    /// Starts logging. Called twice, the first stays in place.
    pub(crate) fn start(log: &Log) -> Logging {
        let (filter, handle) = reload::Layer::new(filter(&log.level));
        let lines: Box<dyn Layer<_> + Send + Sync> = match log.format {
            LogFormat::Text => Box::new(
                fmt::layer()
                    .with_writer(std::io::stderr)
                    .with_ansi(std::io::stderr().is_terminal()),
            ),
            LogFormat::Json => Box::new(
                fmt::layer()
                    .json()
                    .flatten_event(true)
                    .with_writer(std::io::stderr),
            ),
        };
        // Refused only where something logs already, which then goes on.
        let _ = tracing_subscriber::registry()
            .with(filter)
            .with(lines)
            .try_init();
        Logging(handle)
    }

    /// Takes another level from here on.
    pub(crate) fn set_level(&self, level: &Filter) {
        // Refused only when logging has ended with the program.
        let _ = self.0.reload(filter(level));
    }
}

fn filter(level: &Filter) -> EnvFilter {
    EnvFilter::new(level.as_str())
}
