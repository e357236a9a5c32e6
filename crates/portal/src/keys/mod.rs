//! The pages of keys and their usage.

mod code_tabs;
pub(crate) mod csv;
pub(crate) mod detail;
pub(crate) mod explorer;
pub(crate) mod first_key;
pub(crate) mod list;
pub(crate) mod new_key;
pub(crate) mod past_pause;
mod preset;
mod recent_days;
pub(crate) mod restrict;
mod restriction_form;
pub(crate) mod single_use;
pub(crate) mod usage;
mod usage_count;
