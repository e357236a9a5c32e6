//! Personal tokens: programs of an account's owner send them to the management API.
//!
//! A token has the format of a key with the prefix `ipm_`. The regular expression for secret scanners is
//! `ipm_[0-9A-Za-z]{48}`.

use std::fmt;

use crate::key::{KeyDigest, KeyId, generate_secret, parse_secret, random_id};

/// The start of every personal token.
pub const PERSONAL_TOKEN_PREFIX: &str = "ipm_";

/// Maximum length of a token's name, which the audit log shows.
const TOKEN_NAME_CHARS_MAX: usize = 64;

/// The name of a token: 1 to 64 characters, without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenName(String);

impl TokenName {
    /// Parses a name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_valid =
            (1..=TOKEN_NAME_CHARS_MAX).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        is_valid.then(|| Self(text.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a personal token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenScope {
    /// Read keys, their status and their pauses.
    KeysRead,
    /// Create, change, rotate and delete keys.
    KeysWrite,
    /// Resume paused keys.
    KeysResume,
    /// Read the usage of keys.
    UsageRead,
    /// Read channels of alerts.
    AlertsRead,
    /// Create, change, test and delete channels of alerts.
    AlertsWrite,
}

impl TokenScope {
    /// Every scope.
    pub const ALL: [Self; 6] =
        [Self::KeysRead, Self::KeysWrite, Self::KeysResume, Self::UsageRead, Self::AlertsRead, Self::AlertsWrite];

    /// The scope's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeysRead => "keys:read",
            Self::KeysWrite => "keys:write",
            Self::KeysResume => "keys:resume",
            Self::UsageRead => "usage:read",
            Self::AlertsRead => "alerts:read",
            Self::AlertsWrite => "alerts:write",
        }
    }

    /// The scope with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A well-formed token, reduced to its id and its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersonalToken {
    /// Identifies the token. It has the format of a key's id.
    pub id: KeyId,
    /// Proves the secret.
    pub digest: KeyDigest,
}

impl PersonalToken {
    /// Parses a token. The checksum detects typos without I/O.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        parse_secret(text, PERSONAL_TOKEN_PREFIX).map(|(id, digest)| Self { id, digest })
    }
}

/// A token in plain text. It exists from generation until its owner has seen it once.
pub struct PlaintextToken(String);

impl PlaintextToken {
    /// Generates a token from a source of random bytes.
    pub fn generate(mut random_byte: impl FnMut() -> u8) -> Self {
        let id = random_id(&mut random_byte);
        Self(generate_secret(PERSONAL_TOKEN_PREFIX, &id, random_byte))
    }

    /// The plain text, to be shown to its owner once.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The id and digest, which the service stores.
    #[must_use]
    pub fn to_personal_token(&self) -> PersonalToken {
        PersonalToken::parse(&self.0).expect("generated token parses")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApiKey;

    #[test]
    fn token_is_recognized_and_is_no_key() {
        let mut next = 0_u8;
        let plaintext = PlaintextToken::generate(|| {
            next = next.wrapping_add(37);
            next
        });
        let text = plaintext.expose();
        assert!(text.len() == 52 && text.starts_with("ipm_") && text[4..].bytes().all(|b| b.is_ascii_alphanumeric()));
        assert_eq!(plaintext.to_personal_token().id.as_str(), &text[4..14]);
        assert_eq!(ApiKey::parse(text), None);
        let typo = format!("{}{}", &text[..51], if text.ends_with('0') { '1' } else { '0' });
        for invalid in ["", "ipm_", &text.replacen("ipm_", "ips_", 1), &typo] {
            assert_eq!(PersonalToken::parse(invalid), None, "{invalid}");
        }
        assert!(!format!("{:?}", plaintext.to_personal_token()).contains(&text[14..]));
    }

    #[test]
    fn token_name_has_a_length_and_no_control_characters() {
        assert_eq!(
            TokenName::parse("  build server ").map(|name| name.as_str().to_owned()).as_deref(),
            Some("build server")
        );
        for invalid in ["", "  ", "a\nb", &"x".repeat(65)] {
            assert_eq!(TokenName::parse(invalid), None, "{invalid:?}");
        }
    }

    #[test]
    fn every_scope_is_found_by_its_name() {
        for scope in TokenScope::ALL {
            assert_eq!(TokenScope::find(scope.name()), Some(scope));
        }
        assert_eq!(TokenScope::find("keys"), None);
    }
}
