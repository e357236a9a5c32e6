//! TLS with HTTP/1.1 and HTTP/2, chosen by ALPN.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

const HTTP2: &[u8] = b"h2";
pub(crate) const ALPN_TCP: &[&[u8]] = &[HTTP2, b"http/1.1"];
pub(crate) const ALPN_QUIC: &[&[u8]] = &[b"h3"];

/// A certificate and its key.
pub(crate) struct ReferenceCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl ReferenceCertificate {
    pub(crate) fn read(chain: &Path, key: &Path) -> Result<Self> {
        let chain = CertificateDer::pem_file_iter(chain)?.collect::<Result<_, _>>()?;
        Ok(Self { chain, key: PrivateKeyDer::from_pem_file(key)? })
    }

    /// TLS configuration with these protocols.
    pub(crate) fn config(&self, protocols: &[&[u8]]) -> Result<ServerConfig> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        // Same as in the service, so that both negotiate the same cipher suite.
        config.ignore_client_order = true;
        Ok(config)
    }
}

pub(crate) async fn serve(listener: TcpListener, config: ServerConfig, router: Router) {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve_connection(acceptor.clone(), stream, router.clone()));
    }
}

/// The client notices a broken connection.
async fn serve_connection(acceptor: TlsAcceptor, stream: TcpStream, router: Router) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
    let (io, service) = (TokioIo::new(stream), TowerToHyperService::new(router));
    if is_http2 {
        let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
    } else {
        let _ = http1::Builder::new().serve_connection(io, service).await;
    }
}
