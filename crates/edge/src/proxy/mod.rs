//! Trusted proxies: the PROXY protocol, forwarding headers, and headers about the client's connection.

pub(crate) mod forwarded;
pub(crate) mod headers;
pub(crate) mod protocol;
pub(crate) mod trust;
