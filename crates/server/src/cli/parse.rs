//! Parsers of command-line values.

use ipseity_domain::{KeyId, Scope};

pub(super) fn parse_scope(text: &str) -> Result<Scope, &'static str> {
    Scope::parse(text).ok_or("use ip, geo or full")
}

pub(super) fn parse_key_id(text: &str) -> Result<KeyId, &'static str> {
    KeyId::parse(text).ok_or("a key ID is the ten characters after `ips_`; `ipseity key list` shows it")
}
