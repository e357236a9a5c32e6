//! The pages of keys and their usage.

pub(crate) mod csv;
pub(crate) mod detail;
pub(crate) mod list;
pub(crate) mod usage;
