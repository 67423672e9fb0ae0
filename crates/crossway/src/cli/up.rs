//! `crossway up`: the daemon, from reading the configuration to leaving.

use std::path::PathBuf;
use std::process;
use std::sync::Arc;

use clap::Args;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::banner::Banner;
use super::output::Output;
use super::{Answer, CliError, Common};
use crate::admin::{Admin, AdminError, Readiness};
use crate::changes::Changes;
use crate::logging::Logging;
use crate::planes::{Planes, PlanesError};
use crate::reload::{Reload, Source};
use crate::signals::{Signals, Wish};

/// How the daemon is started.
#[derive(Debug, Args)]
pub(super) struct Up {
    /// The folder for state; outdoes the configuration's.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// The daemon couldn't start, or couldn't go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpError {
    #[error("signals can't be listened for: {0}")]
    Signals(std::io::Error),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Planes(#[from] PlanesError),
    #[error("a part of the daemon ended unexpectedly: {0}")]
    Ended(tokio::task::JoinError),
}

/// What a shell calls a program that was ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

impl Up {
    pub(super) async fn run(self, common: &Common, output: Output) -> Result<Answer, CliError> {
        if common.url.is_some() {
            return Err(CliError::Input(
                "up takes no --url; set relay.store in the configuration".to_owned(),
            ));
        }
        let source = Source {
            data_dir: self.data_dir,
            ..common.source()
        };
        // Before it is read, so that no change falls between.
        let mut changes = Changes::watch(source.file.iter().cloned().collect()).await;
        let mut loaded = source.read()?;
        if changes.follow(source.files(&loaded)).await {
            loaded = source.read()?;
        }
        let config = loaded.config.clone();
        let logging = Logging::start(&config.log);
        let mut signals = Signals::listen().map_err(UpError::Signals)?;
        let mut registry = Registry::default();
        let readiness = Readiness::new();

        let reload = Reload::new(source, loaded.clone(), logging, &mut registry);
        let planes = Planes::build(&loaded, &mut registry, &readiness)
            .await
            .map_err(UpError::from)?;
        let admin = Admin::bind(config.admin.listen)
            .await
            .map_err(UpError::from)?;
        let banner = Banner {
            config: &config,
            file: common.config.as_deref(),
            admin: admin.at(),
            embedded: planes.embedded(),
        };
        output.answer(&banner.object(), banner.text())?;

        let stop = CancellationToken::new();
        let _guard = stop.clone().drop_guard();
        let tasks = TaskTracker::new();
        let mut carrying = tasks.spawn(planes.run(reload.subscribe(), stop.clone()));
        // The pages stay until the planes have left, so that leaving can be watched.
        let close_admin = CancellationToken::new();
        let mut pages =
            tasks.spawn(admin.serve(Arc::new(registry), readiness, close_admin.clone()));
        tasks.close();

        let ended = loop {
            tokio::select! {
                () = changes.next() => read_again(&reload, &mut changes).await,
                wish = signals.next() => match wish {
                    Wish::Reload => read_again(&reload, &mut changes).await,
                    Wish::Stop if stop.is_cancelled() => {
                        tracing::warn!("told to stop again; leaving without finishing");
                        process::exit(INTERRUPTED);
                    }
                    Wish::Stop => {
                        tracing::info!("told to stop; finishing what is in flight");
                        stop.cancel();
                    }
                },
                ended = &mut carrying => break ended.map_err(UpError::Ended).and_then(|ended| Ok(ended?)),
                ended = &mut pages => break ended.map_err(UpError::Ended).and_then(|ended| Ok(ended?)),
            }
        };
        stop.cancel();
        close_admin.cancel();
        tasks.wait().await;
        ended?;
        tracing::info!("left");
        Ok(Answer::Yes)
    }
}

/// Reads the configuration again, and once more where it names files that weren't watched while
/// it was read.
async fn read_again(reload: &Reload, changes: &mut Changes) {
    reload.reload().await;
    if changes.follow(reload.files()).await {
        reload.reload().await;
    }
}
