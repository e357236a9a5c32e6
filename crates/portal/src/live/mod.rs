//! Live updates: pages reload when a key of their account changes.

pub(crate) mod events;
pub(crate) mod feed;
