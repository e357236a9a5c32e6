//! The management API: programs of an account's owner manage keys and channels of alerts with a personal token.
//!
//! It is part of the portal, because it changes the same things with the same services. Errors have the format of the API.
//!
//! 1. `routes` lists every operation with the scope that it needs.
//! 2. `guard` finds the token and checks its scope and its limits before a handler runs.
//! 3. A change uses a connection to PostgreSQL that has the id of the token, so that the audit log has its name.

mod body;
mod channels;
mod error;
mod guard;
mod key_body;
mod keys;
mod limits;
mod openapi;
mod restrictions;
mod routes;
mod schema;
#[cfg(test)]
mod tests;
mod usage;

pub(crate) use limits::ManageLimits;
pub use limits::ManageSettings;
pub use openapi::manage_openapi;
pub use routes::{MANAGE_ROUTES, ManageRoute};
pub(crate) use routes::{home_manage_routes, manage_router};
