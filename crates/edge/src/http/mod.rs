//! HTTP/1, HTTP/2 and HTTP/3 on a connection, and the application that they call.

pub(crate) mod body;
pub(crate) mod h1h2;
pub(crate) mod h3;
pub(crate) mod http1_io;
pub(crate) mod refusal;
pub(crate) mod request_check;
pub(crate) mod service;
pub(crate) mod tracked_body;
