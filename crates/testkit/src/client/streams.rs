//! A client that reuses its connection as long as possible and distinguishes lost requests from unsent ones.

use std::error::Error as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::TestResponse;

/// Protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamProtocol {
    /// HTTP/1.1 with keep-alive.
    Http11,
    /// HTTP/2.
    Http2,
}

/// A client of one server.
pub struct StreamTestClient {
    server: SocketAddr,
    protocol: StreamProtocol,
    tls: Option<TlsConnector>,
    connection: Option<StreamConnection>,
    /// Connections opened so far.
    pub connections_opened: usize,
    /// Requests that the server did not process and that were sent again.
    pub unprocessed_retries: usize,
}

enum StreamConnection {
    Http11(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

type StreamSendResult = Result<Response<Incoming>, TrySendError<Request<Empty<Bytes>>>>;

impl StreamTestClient {
    /// A client of a plain HTTP listener, or of a TLS listener with this trusted authority (PEM) for `localhost`.
    pub fn new(server: SocketAddr, protocol: StreamProtocol, ca_file: Option<&Path>) -> Result<Self> {
        let tls = ca_file.map(|ca_file| tls_connector(protocol, ca_file)).transpose()?;
        Ok(Self { server, protocol, tls, connection: None, connections_opened: 0, unprocessed_retries: 0 })
    }

    /// Sends a GET request. Only an unprocessed request is sent again on a new connection: one that was never sent, or
    /// one above the last stream of a GOAWAY (RFC 9113, section 6.8).
    pub async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Result<TestResponse> {
        loop {
            let mut connection = self.ready_connection().await?;
            match connection.send(self.build_request(path, headers)?).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let body = body.collect().await?.to_bytes();
                    self.connection = Some(connection);
                    return Ok(TestResponse { status: head.status.as_u16(), headers: head.headers, body });
                }
                Err(error) if error.message().is_some() || is_unprocessed(error.error()) => {
                    self.unprocessed_retries += 1
                }
                Err(error) => return Err(anyhow!(error.into_error())),
            }
        }
    }

    fn build_request(&self, path: &str, headers: &[(&str, &str)]) -> Result<Request<Empty<Bytes>>> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut request = match self.protocol {
            StreamProtocol::Http11 => Request::builder().uri(path).header(header::HOST, "localhost"),
            StreamProtocol::Http2 => Request::builder().uri(format!("{scheme}://localhost{path}")),
        };
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Ok(request.body(Empty::new())?)
    }

    async fn ready_connection(&mut self) -> Result<StreamConnection> {
        if let Some(mut connection) = self.connection.take()
            && connection.is_ready().await
        {
            return Ok(connection);
        }
        self.connections_opened += 1;
        let stream = TcpStream::connect(self.server).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => handshake(stream, self.protocol).await,
            Some(tls) => {
                let name = ServerName::try_from("localhost")?;
                handshake(tls.connect(name, stream).await.context("no TLS")?, self.protocol).await
            }
        }
    }
}

impl StreamConnection {
    async fn is_ready(&mut self) -> bool {
        match self {
            Self::Http11(send) => send.ready().await.is_ok(),
            Self::Http2(send) => send.ready().await.is_ok(),
        }
    }

    async fn send(&mut self, request: Request<Empty<Bytes>>) -> StreamSendResult {
        match self {
            Self::Http11(send) => send.try_send_request(request).await,
            Self::Http2(send) => send.try_send_request(request).await,
        }
    }
}

fn is_unprocessed(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| cause.is_go_away() && cause.reason() == Some(h2::Reason::NO_ERROR))
}

async fn handshake<S>(stream: S, protocol: StreamProtocol) -> Result<StreamConnection>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let io = TokioIo::new(stream);
    Ok(match protocol {
        StreamProtocol::Http11 => {
            let (send, driver) = http1::handshake(io).await?;
            tokio::spawn(driver);
            StreamConnection::Http11(send)
        }
        StreamProtocol::Http2 => {
            let (send, driver) = http2::handshake(TokioExecutor::new(), io).await?;
            tokio::spawn(driver);
            StreamConnection::Http2(send)
        }
    })
}

/// A TLS connector for tests that use TLS directly.
pub fn tls_connector(protocol: StreamProtocol, ca_file: &Path) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca_file)? {
        roots.add(certificate?)?;
    }
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let alpn: &[u8] = match protocol {
        StreamProtocol::Http11 => b"http/1.1",
        StreamProtocol::Http2 => b"h2",
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    // Disables resumption, so that each handshake shows the server's certificate.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}
