//! View models: one struct for each template. Handlers fill them; they do not access stores or requests.

pub(crate) mod account;
pub(crate) mod alerts;
pub(crate) mod auth;
pub(crate) mod bar_chart;
pub(crate) mod chart;
pub(crate) mod code_tabs;
pub(crate) mod filters;
#[cfg(test)]
mod fixtures;
pub(crate) mod frame;
pub(crate) mod keys;
pub(crate) mod legal;
pub(crate) mod limit_request;
pub(crate) mod linked_accounts;
pub(crate) mod public;
pub(crate) mod restrictions;
pub(crate) mod sparkline;
pub(crate) mod static_pages;
pub(crate) mod status;
pub(crate) mod style_class;
#[cfg(test)]
mod tests;
pub(crate) mod tokens;
pub(crate) mod two_factor;
pub(crate) mod usage;
