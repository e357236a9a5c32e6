//! The limits of a connection: time, bytes and streams. Each limit is enforced where its resource is used.

use std::time::Duration;

/// The limits of each connection, and of all connections of a node together.
#[derive(Clone, Debug)]
pub struct EdgeLimits {
    /// Concurrent connections over all listeners. Each TCP listener reserves one of them for its next client.
    pub connections_max: usize,
    /// Concurrent connections per IPv4 address or IPv6 /64. A /56 has twice and a /48 four times as many, but not more than
    /// a quarter of all. Counts clients in PROXY headers, but not trusted proxies.
    pub connections_per_subnet_max: usize,
    /// How long a connection beyond the limit of its subnet stays open before it is closed, so that its client does not
    /// reconnect immediately. Only a tenth of all connections wait.
    pub refusal_delay: Duration,
    /// How long a listener waits after accept(2) failed.
    pub accept_backoff: Duration,
    /// Timeout for the first byte of a connection, and for the PROXY header where one is expected.
    pub first_byte_timeout: Duration,
    /// Maximum size of a PROXY header.
    pub proxy_header_bytes_max: usize,
    /// Timeout for the TLS handshake.
    pub handshake_timeout: Duration,
    /// Timeout for the first request of a connection and, on HTTP/1, for each header block from its first byte.
    pub header_timeout: Duration,
    /// How long a connection may stay open without a request in flight.
    pub idle_timeout: Duration,
    /// How long a client may take to receive a part of a response, plus the time that `write_rate_min` allows.
    pub write_timeout: Duration,
    /// Minimum rate at which a client must receive each response after `write_timeout`, in bytes per second.
    pub write_rate_min: u64,
    /// How long a response waits for the rest of a request body that the application has not read.
    pub unread_body_timeout: Duration,
    /// Memory of the requests and unsent responses of a connection, of a client subnet, and of the node, in bytes.
    pub memory_per_connection_max: usize,
    /// See `memory_per_connection_max`.
    pub memory_per_subnet_max: usize,
    /// See `memory_per_connection_max`.
    pub memory_max: usize,
    /// How long open requests may take to finish after the drain has started.
    pub drain_timeout: Duration,
    /// Maximum size of a request's header block.
    pub header_bytes_max: usize,
    /// Maximum number of header fields of a request.
    pub headers_max: usize,
    /// Concurrent streams of an HTTP/2 or HTTP/3 connection.
    pub streams_max: u32,
    /// Streams that a client may reset before their response starts. One more closes the connection.
    pub resets_max: usize,
    /// Number of concurrent QUIC handshakes above which clients must complete a Retry, which costs them a round trip.
    pub quic_retry_threshold: usize,
    /// Bytes that a client may send without starting a request: bodies, and frames that are not requests.
    pub unsolicited_bytes_max: usize,
    /// Failed attempts of a connection that do not wait, such as requests without a valid key. Each further one takes
    /// `failed_attempt_interval`. Requests through a trusted proxy do not count.
    pub failed_attempts_max: u32,
    /// See `failed_attempts_max`.
    pub failed_attempt_interval: Duration,
    /// How long a connection that was closed for a flood still counts toward its subnet's limit.
    pub flood_penalty: Duration,
}

/// Why a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client's subnet had too many connections.
    SubnetLimit,
    /// The first byte did not arrive in time.
    FirstByteTimeout,
    /// A PROXY header was missing, invalid or late, or came from an untrusted peer.
    InvalidProxyHeader,
    /// The TLS handshake took too long.
    HandshakeTimeout,
    /// A complete request header did not arrive in time.
    HeaderTimeout,
    /// The connection was idle for too long.
    IdleTimeout,
    /// The peer received a response too slowly.
    WriteTimeout,
    /// The peer reset too many streams.
    StreamResets,
    /// The peer sent too many bytes without a request.
    UnsolicitedBytes,
    /// The peer violated HTTP/2 or a limit of the HTTP/2 library, such as on resets or CONTINUATION frames.
    ProtocolError,
    /// The client's network or the node had no memory for one more stream.
    OutOfMemory,
    /// The connection was still open at the end of the drain.
    DrainTimeout,
}

impl CloseReason {
    /// Every reason.
    pub const ALL: [Self; 12] = [
        Self::SubnetLimit,
        Self::FirstByteTimeout,
        Self::InvalidProxyHeader,
        Self::HandshakeTimeout,
        Self::HeaderTimeout,
        Self::IdleTimeout,
        Self::WriteTimeout,
        Self::StreamResets,
        Self::UnsolicitedBytes,
        Self::ProtocolError,
        Self::OutOfMemory,
        Self::DrainTimeout,
    ];

    /// The name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SubnetLimit => "subnet_limit",
            Self::FirstByteTimeout => "first_byte_timeout",
            Self::InvalidProxyHeader => "invalid_proxy_header",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::HeaderTimeout => "header_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::WriteTimeout => "write_timeout",
            Self::StreamResets => "stream_resets",
            Self::UnsolicitedBytes => "unsolicited_bytes",
            Self::ProtocolError => "protocol_error",
            Self::OutOfMemory => "out_of_memory",
            Self::DrainTimeout => "drain_timeout",
        }
    }
}
