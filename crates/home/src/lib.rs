//! The protocol between remote nodes and home nodes.
//!
//! Home nodes have PostgreSQL and Redis. A *remote node* has neither: it asks home to decide on its requests, over one
//! HTTP/2 stream with mutual TLS 1.3. Both directions of the stream are lines of JSON ([`message`]). So a remote node needs no
//! credentials of a store, and verdicts return in any order.
//!
//! - [`HomeClient`] is the side of the remote node. It keeps one connection open, to the first home node that answers.
//! - [`serve_session`] is the side of the home node. It accepts certificates that are listed in a [`SiteList`], and closes
//!   a connection as soon as its certificate is no longer listed.
//!
//! Guarantees:
//! - A charge or batch that home receives more than [`DELIVERY_TIMEOUT`] after it was sent is not processed.
//! - A call that fails with [`CallError::NotSent`] was certainly not processed.
//! - No message has a client address or a secret of a key. Keys are sent as id and digest.

mod client;
pub mod key_status_message;
pub mod message;
mod record_message;
mod session;
mod stream;
mod tls;

pub use client::{CallError, HomeClient, HomeClientOptions, KeyNotice};
pub use session::{DELIVERY_TIMEOUT, RequestHandler, SiteSessionLimits, serve_session};
pub use tls::{ClientIdentity, SiteList, SitesAcceptor, TlsFileError};
