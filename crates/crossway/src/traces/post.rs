//! Requests to a collector, over one kept connection.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use rustls::{ClientConfig, RootCertStore};

use crate::config::{Endpoint, Header};

/// How long one request may take, connecting included.
const REQUEST: Duration = Duration::from_secs(10);

/// The longest answer that is read, in bytes; a sane one has a few.
const MAX_ANSWER: usize = 64 * 1024;

/// Nothing says whose certificates to believe.
#[derive(Debug, thiserror::Error)]
#[error(
    "traces.endpoint: TLS can't be set up: {0}; install the system's certificates or name a file of them in SSL_CERT_FILE"
)]
pub(crate) struct CertificatesError(String);

/// What became of a request.
pub(super) enum Posted {
    /// The collector has all of it.
    Taken,
    /// The collector has it, but for some that it won't have.
    Rejected { spans: u64, reason: String },
    /// It wasn't taken; where that is passing, the same may be taken later.
    Failed { passing: bool, reason: String },
}

/// Posts to one collector.
pub(super) struct Postman {
    endpoint: Endpoint,
    headers: Vec<Header>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Postman {
    pub(super) async fn new(
        endpoint: &Endpoint,
        headers: &[Header],
    ) -> Result<Postman, CertificatesError> {
        let mut roots = RootCertStore::empty();
        if endpoint.is_encrypted() {
            let found = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs)
                .await
                .map_err(|error| CertificatesError(error.to_string()))?;
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(CertificatesError("there are no certificates".to_owned()));
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| CertificatesError(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Postman {
            endpoint: endpoint.clone(),
            headers: headers.to_vec(),
            client: Client::builder(TokioExecutor::new()).build(connector),
        })
    }

    /// Posts the body of an export request.
    pub(super) async fn post(&self, body: Bytes) -> Posted {
        match tokio::time::timeout(REQUEST, self.exchange(body)).await {
            Ok(posted) => posted,
            Err(_) => self.failed(true, "no answer in ten seconds"),
        }
    }

    async fn exchange(&self, body: Bytes) -> Posted {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.uri().clone();
        let headers = request.headers_mut();
        for header in &self.headers {
            headers.append(header.name().clone(), header.value().clone());
        }
        let kind = axum::http::HeaderValue::from_static("application/x-protobuf");
        headers.insert(CONTENT_TYPE, kind);
        let answer = match self.client.request(request).await {
            Ok(answer) => answer,
            Err(error) => return self.failed(true, &causes(&error)),
        };
        let status = answer.status();
        // Read to its end, so that the connection can be used again.
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        if !status.is_success() {
            return self.failed(is_passing(status), &format!("it answered {status}"));
        }
        let said = body
            .ok()
            .and_then(|body| ExportTraceServiceResponse::decode(body.to_bytes()).ok())
            .and_then(|answer| answer.partial_success);
        match said.map(|said| (u64::try_from(said.rejected_spans), said.error_message)) {
            Some((Ok(spans @ 1..), reason)) => Posted::Rejected {
                spans,
                reason: self.about(&format!("it won't have them: {}", reason.escape_debug())),
            },
            _ => Posted::Taken,
        }
    }

    fn failed(&self, passing: bool, reason: &str) -> Posted {
        Posted::Failed {
            passing,
            reason: self.about(reason),
        }
    }

    fn about(&self, reason: &str) -> String {
        format!("the collector at {}: {reason}", self.endpoint.uri())
    }
}

/// The answers after which OTLP asks to try again.
fn is_passing(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// An error with what caused it, which alone says what the system said.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
