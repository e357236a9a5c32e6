//! HTTP/3 with one task per request.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_LENGTH, CONTENT_TYPE};
use bytes::Bytes;
use h3::server::RequestResolver;
use http::Response;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, Incoming};

pub(crate) fn bind(listen: SocketAddr, config: rustls::ServerConfig) -> Result<Endpoint> {
    let config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(config)?));
    Ok(Endpoint::server(config, listen)?)
}

pub(crate) async fn serve(endpoint: Endpoint, body: Bytes) {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(serve_connection(incoming, body.clone()));
    }
}

/// The client notices a broken connection.
async fn serve_connection(incoming: Incoming, body: Bytes) -> Option<()> {
    let connection = h3_quinn::Connection::new(incoming.await.ok()?);
    let mut connection = h3::server::Connection::<_, Bytes>::new(connection).await.ok()?;
    while let Some(request) = connection.accept().await.ok()? {
        tokio::spawn(respond(request, body.clone()));
    }
    Some(())
}

async fn respond(request: RequestResolver<h3_quinn::Connection, Bytes>, body: Bytes) -> Option<()> {
    let (_, mut stream) = request.resolve_request().await.ok()?;
    let head = Response::builder()
        .header(CONTENT_TYPE, "application/json")
        .header(ACCESS_CONTROL_ALLOW_ORIGIN, "*")
        .header(CONTENT_LENGTH, body.len());
    stream.send_response(head.body(()).ok()?).await.ok()?;
    stream.send_data(body).await.ok()?;
    stream.finish().await.ok()
}
