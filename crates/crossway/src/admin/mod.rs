//! The pages for operators: is it alive, is it ready, what has it counted.

mod listener;
mod readiness;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub(crate) use readiness::{Readiness, Ready};

/// How long requests that are being answered may keep the server from stopping.
const DRAIN: Duration = Duration::from_secs(2);

/// The admin pages couldn't be served.
#[derive(Debug, thiserror::Error)]
#[error("the admin pages can't be served at {at}: {reason}; free the port or set admin.listen")]
pub(crate) struct AdminError {
    at: SocketAddr,
    reason: std::io::Error,
}

/// The admin pages, on a port but not yet served.
pub(crate) struct Admin {
    listener: TcpListener,
    at: SocketAddr,
}

#[derive(Clone)]
struct Pages {
    registry: Arc<Registry>,
    readiness: Readiness,
}

impl Admin {
    /// Takes the port.
    ///
    /// # Errors
    /// [`AdminError`] where it is taken or not ours.
    pub(crate) async fn bind(listen: SocketAddr) -> Result<Admin, AdminError> {
        let failed = |reason| AdminError { at: listen, reason };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        Ok(Admin { listener, at })
    }

    /// Where the pages are.
    pub(crate) fn at(&self) -> SocketAddr {
        self.at
    }

    /// Serves until `stop`, and a little longer for what is being answered then.
    ///
    /// # Errors
    /// [`AdminError`] where the listener breaks.
    pub(crate) async fn serve(
        self,
        registry: Arc<Registry>,
        readiness: Readiness,
        stop: CancellationToken,
    ) -> Result<(), AdminError> {
        let pages = Router::new()
            .route("/healthz", get(health))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .with_state(Pages {
                registry,
                readiness,
            });
        let stopping = stop.clone();
        let server = axum::serve(listener::Bounded::new(self.listener), pages)
            .with_graceful_shutdown(async move { stopping.cancelled().await });
        tokio::select! {
            served = async { server.await } => served.map_err(|reason| AdminError { at: self.at, reason }),
            () = async { stop.cancelled().await; tokio::time::sleep(DRAIN).await } => Ok(()),
        }
    }
}

async fn health() -> &'static str {
    "ok\n"
}

async fn ready(State(pages): State<Pages>) -> Response {
    let (ready, states) = pages.readiness.report();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = serde_json::json!({"ready": ready, "parts": states}).to_string() + "\n";
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

async fn metrics(State(pages): State<Pages>) -> Response {
    let mut body = String::new();
    match prometheus_client::encoding::text::encode(&mut body, &pages.registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], body).into_response()
        }
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("metrics can't be written: {error}\n"),
        )
            .into_response(),
    }
}
