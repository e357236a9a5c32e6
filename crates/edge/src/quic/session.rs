//! The TLS session of a QUIC connection, on top of `rustls::quic`. quinn's does not expose the cipher suite.
//!
//! There are no keys for early data, so it cannot be read.

use std::any::Any;
use std::sync::Arc;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session, UnsupportedVersion,
};
use quinn::{ConnectionId, Side, TransportErrorCode};
use quinn_proto::TransportError;
use quinn_proto::transport_parameters::TransportParameters;
use rustls::quic::{KeyChange, Secrets, ServerConnection, Version};

use crate::tls;

/// RFC 9000. Drafts are not supported.
pub(crate) const QUIC_V1: u32 = 1;

/// Starts the sessions of a listener.
pub(crate) struct QuicServerCrypto {
    tls_config: Arc<rustls::ServerConfig>,
    /// Derives initial keys and Retry tags, which do not depend on the session.
    quinn_config: QuicServerConfig,
}

impl QuicServerCrypto {
    pub(crate) fn new(tls_config: Arc<rustls::ServerConfig>) -> Self {
        let quinn_config =
            QuicServerConfig::try_from(Arc::clone(&tls_config)).expect("provider supports TLS_AES_128_GCM_SHA256");
        Self { tls_config, quinn_config }
    }
}

impl ServerConfig for QuicServerCrypto {
    fn initial_keys(&self, version: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.quinn_config.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.quinn_config.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(self: Arc<Self>, _version: u32, params: &TransportParameters) -> Box<dyn Session> {
        let mut encoded = Vec::new();
        params.write(&mut encoded);
        let inner = ServerConnection::new(Arc::clone(&self.tls_config), Version::V1, encoded)
            .expect("configuration has TLS 1.3 and no early data");
        Box::new(QuicTlsSession { crypto: self, inner, next_secrets: None, handshake_data_reported: false })
    }
}

struct QuicTlsSession {
    crypto: Arc<QuicServerCrypto>,
    inner: ServerConnection,
    next_secrets: Option<Secrets>,
    /// Whether quinn knows that the handshake data is available.
    handshake_data_reported: bool,
}

impl Session for QuicTlsSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, _side: Side) -> Keys {
        let keys = self.crypto.initial_keys(QUIC_V1, dst_cid);
        keys.unwrap_or_else(|_| unreachable!("the endpoint supports only version 1"))
    }

    /// The negotiated session, as [`ipseity_domain::TlsInfo`].
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let tls_session = tls::negotiated_session(self.inner.protocol_version(), self.inner.negotiated_cipher_suite());
        tls_session.map(|tls_session| Box::new(tls_session) as Box<dyn Any>)
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_hs(buf).map_err(|error| {
            let code = self
                .inner
                .alert()
                .map_or(TransportErrorCode::PROTOCOL_VIOLATION, |alert| TransportErrorCode::crypto(alert.into()));
            TransportError { code, frame: None, reason: error.to_string() }
        })?;
        let is_newly_available = !self.handshake_data_reported && self.inner.negotiated_cipher_suite().is_some();
        self.handshake_data_reported |= is_newly_available;
        Ok(is_newly_available)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let read = |mut encoded: &[u8]| TransportParameters::read(Side::Server, &mut encoded);
        Ok(self.inner.quic_transport_parameters().map(read).transpose()?)
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let keys = match self.inner.write_hs(buf)? {
            KeyChange::Handshake { keys } => keys,
            KeyChange::OneRtt { keys, next } => {
                self.next_secrets = Some(next);
                keys
            }
        };
        Some(Keys {
            header: KeyPair { local: Box::new(keys.local.header), remote: Box::new(keys.remote.header) },
            packet: KeyPair { local: Box::new(keys.local.packet), remote: Box::new(keys.remote.packet) },
        })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next_secrets.as_mut()?.next_packet_keys();
        Some(KeyPair { local: Box::new(keys.local), remote: Box::new(keys.remote) })
    }

    // Only clients receive Retry packets.
    fn is_valid_retry(&self, _orig_dst_cid: &ConnectionId, _header: &[u8], _payload: &[u8]) -> bool {
        false
    }

    // Nothing uses the session's secrets.
    fn export_keying_material(
        &self,
        _output: &mut [u8],
        _label: &[u8],
        _context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}
