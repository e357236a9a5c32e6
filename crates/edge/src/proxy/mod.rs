//! Trusted proxies: PROXY protocol, forwarding headers, and what proxies report about their clients.

pub(crate) mod forwarded;
pub(crate) mod headers;
pub(crate) mod protocol;
pub(crate) mod trust;
