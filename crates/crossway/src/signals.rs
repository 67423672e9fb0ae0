//! What the operating system asks of a daemon.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A wish of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Finish and leave: SIGTERM, or Ctrl-C.
    Stop,
    /// Read the configuration again: SIGHUP.
    Reload,
}

/// Listens for signals from the moment it is made.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    /// Where the operating system refuses the handlers.
    pub(crate) fn listen() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next wish.
    pub(crate) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.interrupt.recv() => Wish::Stop,
            _ = self.hang_up.recv() => Wish::Reload,
        }
    }
}
