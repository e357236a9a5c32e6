//! The management API: access control, effects on keys, limits, and the page of personal tokens.

mod authorization;
mod channels;
pub(crate) mod fixture;
mod keys;
mod limits;
mod resume;
mod tokens;
