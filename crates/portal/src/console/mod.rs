//! The admin console: pages for the operators of a deployment, on a separate listener.
//!
//! - [`Console`] is the shared state. The server creates it from [`ConsoleSettings`] and its [`ConsoleHost`].
//! - [`console_router`] builds the router. [`CONSOLE_ROUTES`] lists every page and form with the role it needs; a request is
//!   authorized by that table, before its handler runs.
//! - Changes go through connections that have the name of the operator, so that the audit log records it.
//!
//! Pages show counts and states, never a client address, an answer or a key.

mod accounts;
mod audit;
mod emails;
pub(crate) mod error;
mod first_link;
mod guard;
mod host;
mod join;
mod keys;
mod nodes;
mod operator;
mod operators;
mod overview;
mod path_part;
mod profile;
mod providers;
mod rejections;
mod requests;
mod routes;
mod search;
mod sign_in;
mod sign_ups;
pub(crate) mod state;
mod system;
pub(crate) mod view;

pub use first_link::offer_first_link;
pub use host::{ConsoleHost, GeoEdition, HealthCheck, NodeCertificate, OperatorStores};
pub use join::generate_operator_link;
pub use routes::{CONSOLE_ROUTES, ConsoleAccess, ConsoleRoute, console_router};
pub use state::{Console, ConsoleSettings};
