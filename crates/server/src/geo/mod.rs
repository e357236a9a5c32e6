//! Geo databases: reload on change, and scheduled downloads.

pub(crate) mod download;
pub(crate) mod extract;
pub(crate) mod reload;
pub(crate) mod update;
