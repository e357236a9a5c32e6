//! A caller that keeps one connection as long as the server does, and knows a request that was lost from one that never left.

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

use crate::Reply;

/// What a caller speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 with keep-alive.
    Http11,
    /// HTTP/2.
    Http2,
}

/// A caller of one server.
pub struct StreamCaller {
    server: SocketAddr,
    protocol: Protocol,
    tls: Option<TlsConnector>,
    connection: Option<Connection>,
    /// Connections opened so far.
    pub connects: usize,
    /// Requests that a connection gave back untouched and that went over the next one.
    pub given_back: usize,
}

enum Connection {
    Http11(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

type Sent = Result<Response<Incoming>, TrySendError<Request<Empty<Bytes>>>>;

impl StreamCaller {
    /// A caller of a clear listener, or of a TLS one whose authority (PEM) is trusted for `localhost`.
    pub fn new(server: SocketAddr, protocol: Protocol, authority: Option<&Path>) -> Result<Self> {
        let tls = authority.map(|authority| connector(protocol, authority)).transpose()?;
        Ok(Self { server, protocol, tls, connection: None, connects: 0, given_back: 0 })
    }

    /// Asks for a path. A request that was given back goes over a new connection: one that never left, or one that the server's GOAWAY
    /// says it has not touched (RFC 9113, section 6.8). No other is sent again.
    pub async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Result<Reply> {
        loop {
            let mut connection = self.ready().await?;
            match connection.send(self.request(path, headers)?).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let body = body.collect().await?.to_bytes();
                    self.connection = Some(connection);
                    return Ok(Reply { status: head.status.as_u16(), headers: head.headers, body });
                }
                Err(error) if error.message().is_some() || is_given_back(error.error()) => self.given_back += 1,
                Err(error) => return Err(anyhow!(error.into_error())),
            }
        }
    }

    fn request(&self, path: &str, headers: &[(&str, &str)]) -> Result<Request<Empty<Bytes>>> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut request = match self.protocol {
            Protocol::Http11 => Request::builder().uri(path).header(header::HOST, "localhost"),
            Protocol::Http2 => Request::builder().uri(format!("{scheme}://localhost{path}")),
        };
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Ok(request.body(Empty::new())?)
    }

    async fn ready(&mut self) -> Result<Connection> {
        if let Some(mut connection) = self.connection.take()
            && connection.is_ready().await
        {
            return Ok(connection);
        }
        self.connects += 1;
        let stream = TcpStream::connect(self.server).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => shake(stream, self.protocol).await,
            Some(tls) => {
                let name = ServerName::try_from("localhost")?;
                shake(tls.connect(name, stream).await.context("no TLS")?, self.protocol).await
            }
        }
    }
}

impl Connection {
    async fn is_ready(&mut self) -> bool {
        match self {
            Self::Http11(send) => send.ready().await.is_ok(),
            Self::Http2(send) => send.ready().await.is_ok(),
        }
    }

    async fn send(&mut self, request: Request<Empty<Bytes>>) -> Sent {
        match self {
            Self::Http11(send) => send.try_send_request(request).await,
            Self::Http2(send) => send.try_send_request(request).await,
        }
    }
}

fn is_given_back(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| cause.is_go_away() && cause.reason() == Some(h2::Reason::NO_ERROR))
}

async fn shake<S>(stream: S, protocol: Protocol) -> Result<Connection>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let io = TokioIo::new(stream);
    Ok(match protocol {
        Protocol::Http11 => {
            let (send, driver) = http1::handshake(io).await?;
            tokio::spawn(driver);
            Connection::Http11(send)
        }
        Protocol::Http2 => {
            let (send, driver) = http2::handshake(TokioExecutor::new(), io).await?;
            tokio::spawn(driver);
            Connection::Http2(send)
        }
    })
}

/// A client's TLS, for tests that speak it themselves.
pub fn connector(protocol: Protocol, authority: &Path) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority)? {
        roots.add(certificate?)?;
    }
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let alpn: &[u8] = match protocol {
        Protocol::Http11 => b"http/1.1",
        Protocol::Http2 => b"h2",
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    // A full handshake each time, so that each sees the server's certificate.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}
