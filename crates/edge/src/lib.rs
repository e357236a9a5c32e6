//! Sockets, TLS and the client's identity.
//!
//! A connection is accepted, held to its [`Bounds`], and each of its requests is given to an [`Application`] with its
//! [`domain::Client`]. Forwarding headers are read here and nowhere else.
//!
//! Deliberately absent: routes, answers of our own, and any log line, error or `Debug` that could show an address.

mod acme;
mod body;
mod bounds;
mod certificate;
mod connection;
mod crowd;
mod drain;
mod edge;
mod files;
mod forwarded;
mod http3;
mod identify;
mod inherit;
mod listen;
mod proxy_header;
mod quic;
mod quic_session;
mod quic_stream;
mod report;
mod rtt;
mod serve;
mod service;
mod socket;
mod stats;
mod steer;
mod suites;
mod tls;
mod trust;
mod vigil;
mod wardrobe;

pub use acme::{Acme, AcmeError, AcmeOptions, Challenge, HttpTokens};
pub use body::RequestBody;
pub use bounds::{Bound, Bounds};
pub use certificate::{CertificateError, CertificateFiles};
pub use drain::{Drain, DrainSwitch};
pub use edge::Edge;
pub use files::raise_file_limit;
pub use forwarded::ForwardingHeader;
pub use inherit::Inherited;
pub use listen::Listener;
pub use proxy_header::{Announced, Announcement, Reading, read_proxy_header};
pub use quic::{QuicListener, serve_quic};
pub use report::Reports;
pub use serve::{Transport, serve};
pub use service::Application;
pub use stats::{Counter, Stats};
pub use tls::Tls;
pub use trust::{Distance, Origin, PassThrough, Step, Trust, UnsafeTrust};
pub use wardrobe::{Change, Remaining, Wardrobe};
