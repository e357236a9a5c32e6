//! Email addresses of accounts, and names of keys.

use std::fmt;

/// Maximum length of an email address (RFC 5321, section 4.5.3.1.3, without the brackets).
const EMAIL_BYTES_MAX: usize = 254;
/// Maximum length of a key's name.
const KEY_NAME_CHARS_MAX: usize = 100;

/// A plausible email address: trimmed, with one `@` between two non-empty parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmailAddress(String);

impl EmailAddress {
    /// Parses an address. It may still not exist.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (local, host) = text.split_once('@')?;
        let has_no_space_or_control = !text.chars().any(|c| c.is_whitespace() || c.is_control());
        (has_no_space_or_control
            && !local.is_empty()
            && !host.is_empty()
            && !host.contains('@')
            && text.len() <= EMAIL_BYTES_MAX)
            .then(|| Self(text.to_owned()))
    }

    /// The address as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EmailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A key's name, chosen by its owner: trimmed, 1 to 100 characters, no control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyName(String);

impl KeyName {
    /// Parses a name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let chars = text.chars().count();
        ((1..=KEY_NAME_CHARS_MAX).contains(&chars) && !text.chars().any(char::is_control))
            .then(|| Self(text.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn email_address_has_one_at_between_two_parts() {
        assert_eq!(EmailAddress::parse(" a@b.example ").as_ref().map(EmailAddress::as_str), Some("a@b.example"));
        for invalid in ["", "a", "@b", "a@", "a@b@c", "a b@c", "a\n@c"] {
            assert!(EmailAddress::parse(invalid).is_none(), "{invalid:?} was accepted");
        }
    }

    #[test]
    fn key_name_has_1_to_100_characters() {
        assert!(KeyName::parse("  web shop ").is_some());
        for invalid in ["", "  ", "a\tb", &"x".repeat(101)] {
            assert!(KeyName::parse(invalid).is_none(), "{invalid:?} was accepted");
        }
    }
}
