//! QUIC: the endpoint, its TLS sessions, port sharing, and streams for HTTP/3.

pub(crate) mod endpoint;
pub(crate) mod reuseport;
pub(crate) mod session;
pub(crate) mod streams;
