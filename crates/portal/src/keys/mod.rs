//! The pages of keys and their usage.

pub(crate) mod csv;
pub(crate) mod detail;
pub(crate) mod list;
pub(crate) mod new_key;
pub(crate) mod past_pause;
mod preset;
pub(crate) mod restrict;
mod restriction_form;
mod single_use;
pub(crate) mod usage;
