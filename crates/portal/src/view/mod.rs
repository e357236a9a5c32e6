//! View models: one struct for each template. Handlers fill them; they do not access stores or requests.

pub(crate) mod account;
pub(crate) mod auth;
pub(crate) mod chart;
pub(crate) mod filters;
#[cfg(test)]
mod fixtures;
pub(crate) mod frame;
pub(crate) mod key_badge;
pub(crate) mod keys;
pub(crate) mod limit_request;
pub(crate) mod public;
pub(crate) mod restrictions;
pub(crate) mod static_pages;
#[cfg(test)]
mod tests;
pub(crate) mod two_factor;
pub(crate) mod usage;
