//! Sockets, TLS and the client's identity.
//!
//! A connection is accepted, held to its [`Bounds`], and each of its requests is given to an [`Application`] with its
//! [`ipseity_domain::Client`]. Forwarding headers are read here and nowhere else.
//!
//! Deliberately absent: routes, answers of our own, and any log line, error or `Debug` that could show an address.

mod connection;
mod drain;
mod http;
mod identify;
mod limits;
mod listen;
mod proxy;
mod quic;
mod serve;
mod socket;
mod state;
mod stats;
mod subnet_limit;
mod sys;
mod tls;
mod watchdog;

pub use drain::{Drain, DrainSwitch};
pub use http::body::RequestBody;
pub use http::service::Application;
pub use limits::{CloseReason, EdgeLimits};
pub use listen::Listener;
pub use proxy::forwarded::ForwardingHeader;
pub use proxy::headers::ConnectionHeaders;
pub use proxy::protocol::{ProxiedClient, ProxyHeader, ProxyHeaderStatus, parse_proxy_header};
pub use proxy::trust::{ClientOrigin, Distance, PassThrough, Trust, TrustStep, UnsafeTrust};
pub use quic::endpoint::{QuicListener, serve_quic};
pub use serve::{Transport, serve};
pub use state::EdgeState;
pub use stats::{EdgeCounter, EdgeStats};
pub use sys::rlimit::raise_file_limit;
pub use sys::socket_activation::InheritedSockets;
pub use tls::TlsServerConfig;
pub use tls::acme::{AcmeChallenge, AcmeClient, AcmeError, AcmeOptions, Http01Tokens};
pub use tls::certificate::{CertificateError, CertificateFiles};
pub use tls::resolver::{CertResolver, CertificateExpiry, CertificateReload};
