//! What a connection may take: time, bytes, streams. Nothing here enforces; each bound is held where its resource is.

use std::time::Duration;

/// The bounds of every connection, and of all together.
#[derive(Clone, Debug)]
pub struct EdgeLimits {
    /// Connections held at once, over all listeners of one edge; each listener keeps one of them for its next caller.
    pub connections_max: usize,
    /// Connections held at once by one neighbourhood; trusted proxies are not counted, the clients that they announce are.
    pub connections_per_subnet_max: usize,
    /// How long a listener waits when the system refuses it a connection.
    pub accept_backoff: Duration,
    /// Time for a connection's first byte, and for a PROXY header where one is expected.
    pub first_byte_timeout: Duration,
    /// Bytes of a PROXY header.
    pub proxy_header_bytes_max: usize,
    /// Time for the TLS handshake.
    pub handshake_timeout: Duration,
    /// Time for a connection's first request, and for each header block of HTTP/1 from the end of the answer before.
    pub header_timeout: Duration,
    /// Time that a connection may stay open with no request in flight.
    pub idle_timeout: Duration,
    /// Time that a connection may go without taking a byte of what is ready for it.
    pub write_timeout: Duration,
    /// Time that open requests get to finish once the drain has begun.
    pub drain_timeout: Duration,
    /// Bytes of a request's header block.
    pub header_bytes_max: usize,
    /// Lines of a request's header block (HTTP/1).
    pub headers_max: usize,
    /// Streams at once on an HTTP/2 or HTTP/3 connection.
    pub streams_max: u32,
    /// Streams that a client may reset before their answer, before its connection is closed.
    pub resets_max: usize,
    /// QUIC handshakes at once from which on further callers must first prove their address, at the cost of a round trip.
    pub quic_retry_threshold: usize,
    /// Bytes that a client may send without beginning a request: bodies, and frames that ask for nothing.
    pub unsolicited_bytes_max: usize,
    /// How long a connection that was closed for a flood still counts among its neighbourhood's.
    pub flood_penalty: Duration,
}

/// The bound that closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer's neighbourhood held too many connections.
    SubnetLimit,
    /// No byte came in time.
    FirstByteTimeout,
    /// No PROXY header came where one was expected, or from a peer that may not send one.
    InvalidProxyHeader,
    /// The TLS handshake took too long.
    HandshakeTimeout,
    /// No whole request header came in time.
    HeaderTimeout,
    /// No request was in flight for too long.
    IdleTimeout,
    /// The peer took no byte for too long.
    WriteTimeout,
    /// The peer reset too many streams.
    StreamResets,
    /// The peer sent too much without asking for anything.
    UnsolicitedBytes,
    /// The peer broke a rule or a bound of HTTP/2 itself, such as on resets or CONTINUATION frames.
    ProtocolError,
    /// The connection outlived the drain.
    DrainTimeout,
}

impl CloseReason {
    /// Every bound.
    pub const ALL: [Self; 11] = [
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
        Self::DrainTimeout,
    ];

    /// The name that metrics carry.
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
            Self::DrainTimeout => "drain_timeout",
        }
    }
}
