//! The default configuration.

/// Every setting with its default and meaning.
pub(super) const DEFAULT_TOML: &str = include_str!("default.toml");
