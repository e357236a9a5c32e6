//! Parsers of command-line values.

use ipseity_domain::{KEY_PREFIX, KeyId, Scope};

pub(super) fn parse_scope(text: &str) -> Result<Scope, &'static str> {
    Scope::parse(text).ok_or("use ip, geo or full")
}

/// Accepts a whole key too, because an error would print it.
pub(super) fn parse_key_id(text: &str) -> Result<KeyId, &'static str> {
    let id = text.get(..KEY_PREFIX.len() + KeyId::CHARS).filter(|id| id.starts_with(KEY_PREFIX));
    KeyId::parse(id.unwrap_or(text)).ok_or("a key ID is the ten characters after `ips_`; `ipseity key list` shows it")
}

/// The name is also the DNS name in the site's certificate, so a hyphen is neither first nor last.
pub(super) fn parse_site_name(text: &str) -> Result<String, &'static str> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_valid = (1..=32).contains(&text.len())
        && text.chars().all(is_allowed)
        && !text.starts_with('-')
        && !text.ends_with('-');
    is_valid.then(|| text.to_owned()).ok_or(
        "a site name has up to 32 lowercase letters, digits and hyphens, and starts and ends with a letter or digit",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_name_is_a_dns_label_of_up_to_32_characters() {
        let longest = "a".repeat(32);
        for name in ["a", "7", "fra-2", "a--b", &longest] {
            assert_eq!(parse_site_name(name).as_deref(), Ok(name));
        }
        let too_long = "a".repeat(33);
        for name in ["", "-", "-fra", "fra-", "FRA", "fra_2", "fra.example", "fra 2", "fra\n", "fr\u{e4}", &too_long] {
            assert!(parse_site_name(name).is_err(), "{name:?}");
        }
    }
}
