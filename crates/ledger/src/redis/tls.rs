//! Certificates of connections to `rediss://` URLs.

use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};

use crate::error::LedgerError;

/// Certificates for TLS, in PEM format.
#[derive(Clone, Default)]
pub struct RedisTls {
    /// Certification authorities of the servers. Otherwise those of the system.
    pub ca: Option<Vec<u8>>,
    /// The certificate of this client and its private key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl RedisTls {
    /// Creates a client with these certificates, if its URL uses TLS.
    pub(super) fn open_client(&self, info: ConnectionInfo) -> Result<Client, LedgerError> {
        // The addresses of other servers of a cluster have the certificates of the one that listed them.
        let needs_certificates = matches!(info.addr(), ConnectionAddr::TcpTls { tls_params: None, .. });
        if !needs_certificates {
            return Ok(Client::open(info)?);
        }
        let to_config = |(client_cert, client_key)| ClientTlsConfig { client_cert, client_key };
        let certificates =
            TlsCertificates { client_tls: self.client.clone().map(to_config), root_cert: self.ca.clone() };
        Ok(Client::build_with_tls(info, certificates)?)
    }
}
