//! HTTP/3 and the HTTP service of a connection.

pub(crate) mod body;
pub(crate) mod h3;
pub(crate) mod service;
