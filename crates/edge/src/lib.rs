//! The network edge of a node: sockets, TLS, HTTP/1.1, HTTP/2, HTTP/3, and the identity of each client.
//!
//! [`serve()`] serves the connections of a TCP [`Listener`], and [`serve_quic`] those of a [`QuicListener`]. Both pass
//! every request to an [`Application`], together with its [`ipseity_domain::Client`]. Routing is up to the application.
//!
//! Main types:
//! - [`EdgeState`]: limits, trusted proxies, counters and permits, shared by all listeners of a node.
//! - [`Trust`]: the trusted proxies, and the one [`ForwardingHeader`] that is read.
//! - [`CertResolver`] and [`AcmeClient`]: certificates from files and from ACME, replaced without a restart.
//! - [`Drain`]: the graceful shutdown.
//!
//! Guarantees:
//! - The client's address is that of the socket's peer, unless the peer is in a trusted network. Only then are PROXY
//!   headers and the forwarding header read, up to the first untrusted address.
//! - Every connection is subject to [`EdgeLimits`]. Those that a limit closes are counted by [`CloseReason`].
//! - During a drain, requests in flight finish if they take less than [`EdgeLimits::drain_timeout`].
//! - No log line, error or `Debug` output contains the address of a client.

mod connection;
mod drain;
mod failed_attempts;
mod http;
mod identify;
mod limits;
mod listen;
mod memory_budget;
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

pub use connection::Transport;
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
pub use serve::serve;
pub use state::EdgeState;
pub use stats::{EdgeCounter, EdgeStats};
pub use sys::rlimit::raise_file_limit;
pub use sys::socket_activation::InheritedSockets;
pub use tls::TlsServerConfig;
pub use tls::acme::{AcmeChallenge, AcmeClient, AcmeError, AcmeOptions, Http01Tokens};
pub use tls::certificate::{CertificateError, CertificateFiles};
pub use tls::resolver::{CertResolver, CertificateExpiry, CertificateReload};
