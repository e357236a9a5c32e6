//! HTTP clients for tests: HTTP/1.1, HTTP/2 and HTTP/3.

pub mod http1;
pub mod quic;
pub mod streams;
