//! An HTTP/3 client with one connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bytes::{Buf, Bytes, BytesMut};
use h3::client::{RequestStream, SendRequest};
use h3::error::{Code, StreamError};
use h3_quinn::BidiStream;
use http::{Method, Request};
use quinn::crypto::rustls::{HandshakeData, QuicClientConfig};
use quinn::{ClientConfig, Connection, Endpoint};
pub use rustls::CipherSuite;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::TestResponse;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of an HTTP/3 client.
#[derive(Debug, Clone)]
pub struct Http3TestOptions<'a> {
    /// UDP address of the server.
    pub server: SocketAddr,
    /// Server name in the certificate.
    pub name: &'a str,
    /// Trusted authority, as a PEM file.
    pub ca_file: &'a Path,
    /// The only cipher suite to offer; all of TLS 1.3 if `None`.
    pub cipher_suite: Option<CipherSuite>,
    /// Source address; chosen by the system if `None`.
    pub source_ip: Option<IpAddr>,
}

impl<'a> Http3TestOptions<'a> {
    /// Default options for a server named `localhost`.
    #[must_use]
    pub const fn localhost(server: SocketAddr, ca_file: &'a Path) -> Self {
        Self { server, name: "localhost", ca_file, cipher_suite: None, source_ip: None }
    }
}

/// An HTTP/3 client with one connection.
pub struct Http3TestClient {
    /// The QUIC connection.
    pub connection: Connection,
    send: SendRequest<h3_quinn::OpenStreams, Bytes>,
    driver: JoinHandle<()>,
    endpoint: Endpoint,
    name: String,
}

impl Http3TestClient {
    /// Connects to the server.
    pub async fn connect(options: Http3TestOptions<'_>) -> Result<Self> {
        let endpoint = client_endpoint(&options)?;
        let connection = timeout(CONNECT_TIMEOUT, endpoint.connect(options.server, options.name)?)
            .await
            .context("no handshake")??;
        let (mut driver, send) = h3::client::new(h3_quinn::Connection::new(connection.clone())).await?;
        let driver = tokio::spawn(async move { drop(driver.wait_idle().await) });
        Ok(Self { connection, send, driver, endpoint, name: options.name.to_owned() })
    }

    /// Sends a GET request.
    pub async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Result<TestResponse> {
        self.send(Method::GET, path, headers, Bytes::new()).await
    }

    /// Sends a GET request. Returns `None` if the server sent GOAWAY or rejected the request unprocessed.
    pub async fn try_get(&mut self, path: &str) -> Result<Option<TestResponse>> {
        let request = Request::get(format!("https://{}{path}", self.name)).body(())?;
        let Ok(stream) = self.send.send_request(request).await else { return Ok(None) };
        match receive_response(stream).await {
            Ok(reply) => Ok(Some(reply)),
            Err(StreamError::RemoteTerminate { code: Code::H3_REQUEST_REJECTED, .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a request with any method and body.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<TestResponse> {
        let mut request = Request::builder().method(method).uri(format!("https://{}{path}", self.name));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut stream = self.send.send_request(request.body(())?).await?;
        if !body.is_empty() {
            stream.send_data(body).await?;
        }
        Ok(receive_response(stream).await?)
    }

    /// Whether the server sent GOAWAY or the connection is closed.
    #[must_use]
    pub fn got_goaway(&self) -> bool {
        self.driver.is_finished() || self.connection.close_reason().is_some()
    }

    /// The negotiated protocol.
    #[must_use]
    pub fn alpn_protocol(&self) -> Option<Vec<u8>> {
        self.connection.handshake_data()?.downcast::<HandshakeData>().ok()?.protocol
    }

    /// Closes the connection without waiting.
    pub fn close_now(self) {
        self.connection.close(0_u32.into(), b"");
    }

    /// Closes the connection and waits until the server has noticed.
    pub async fn close(self) {
        self.connection.close(0_u32.into(), b"");
        self.endpoint.wait_idle().await;
    }
}

async fn receive_response(mut stream: RequestStream<BidiStream<Bytes>, Bytes>) -> Result<TestResponse, StreamError> {
    match stream.finish().await {
        // A server that has already responded does not need the rest of the request (RFC 9114, section 4.1).
        Err(StreamError::RemoteTerminate { code: Code::H3_NO_ERROR, .. }) => {}
        finished => finished?,
    }
    let (head, ()) = stream.recv_response().await?.into_parts();
    let mut body = BytesMut::new();
    while let Some(mut data) = stream.recv_data().await? {
        body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    Ok(TestResponse { status: head.status.as_u16(), headers: head.headers, body: body.freeze() })
}

/// A client endpoint for tests that use QUIC directly. It sends early data if the server allows it.
pub fn client_endpoint(options: &Http3TestOptions<'_>) -> Result<Endpoint> {
    let unspecified =
        if options.server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let mut endpoint = Endpoint::client(SocketAddr::new(options.source_ip.unwrap_or(unspecified), 0))?;
    endpoint.set_default_client_config(client_config(options)?);
    Ok(endpoint)
}

/// A client configuration for tests that send packets directly.
pub fn client_config(options: &Http3TestOptions<'_>) -> Result<ClientConfig> {
    let mut provider = aws_lc_rs::default_provider();
    if let Some(wanted) = options.cipher_suite {
        provider.cipher_suites.retain(|suite| suite.suite() == wanted);
    }
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(options.ca_file)? {
        roots.add(certificate?)?;
    }
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.enable_early_data = true;
    let initial = initial_suite().ok_or_else(|| anyhow!("no cipher suite for Initial packets"))?;
    let config = ClientConfig::new(Arc::new(QuicClientConfig::with_initial(Arc::new(tls), initial)?));
    Ok(config)
}

/// The cipher suite of Initial packets is fixed (RFC 9001, section 5.2).
fn initial_suite() -> Option<rustls::quic::Suite> {
    let suites = aws_lc_rs::ALL_CIPHER_SUITES.iter();
    let first = CipherSuite::TLS13_AES_128_GCM_SHA256;
    suites.filter(|suite| suite.suite() == first).find_map(|suite| suite.tls13()?.quic_suite())
}
