//! Sockets, TLS and the client's identity.
//!
//! A connection is accepted, held to its [`Bounds`], and each of its requests is given to a `tower::Service` with a
//! [`domain::Client`] in its extensions. Forwarding headers are read here and nowhere else.
//!
//! Deliberately absent: routes, answers of our own, and any log line, error or `Debug` that could show an address.

mod bounds;
mod connection;
mod crowd;
mod drain;
mod edge;
mod files;
mod forwarded;
mod identify;
mod listen;
mod proxy_header;
mod report;
mod rtt;
mod serve;
mod service;
mod socket;
mod stats;
mod suites;
mod tls;
mod trust;
mod vigil;

pub use bounds::{Bound, Bounds};
pub use drain::{Drain, DrainSwitch};
pub use edge::Edge;
pub use files::raise_file_limit;
pub use forwarded::ForwardingHeader;
pub use listen::Listener;
pub use proxy_header::{Announced, Announcement, Reading, read_proxy_header};
pub use report::Reports;
pub use serve::{Transport, serve};
pub use service::Application;
pub use stats::{Counter, Stats};
pub use tls::{CertificateError, Tls};
pub use trust::{Distance, Origin, PassThrough, Step, Trust, UnsafeTrust};
