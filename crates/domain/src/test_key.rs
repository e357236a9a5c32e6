//! Test keys: published constants, one per scope. Applications use them in their tests and get made-up data.
//!
//! They look like keys, except for the prefix: `ipst_` instead of `ips_`. So no test key is ever accepted as a key, and the
//! pattern of both is `ipst?_[0-9A-Za-z]{48}`. They are no secrets, and scanners for `ips_` do not report them.

use crate::key::TICKET_PREFIX;
use crate::scope::Scope;

/// The start of every test key.
pub const TEST_KEY_PREFIX: &str = "ipst_";

/// The test key of a scope.
#[must_use]
pub const fn test_key(scope: Scope) -> &'static str {
    match scope {
        Scope::Ip => "ipst_TestIp0000NotASecret000000000000000000000019mvRI",
        Scope::Geo => "ipst_TestGeo000NotASecret00000000000000000000001mr5ps",
        Scope::Full => "ipst_TestFull00NotASecret000000000000000000000003k296",
    }
}

/// The test ticket of a scope.
#[must_use]
pub fn test_ticket(scope: Scope) -> String {
    format!("{TICKET_PREFIX}{}", test_key(scope))
}

/// The scope of a test key or test ticket; `None` for any other text.
#[must_use]
pub fn test_key_scope(text: &str) -> Option<Scope> {
    let key = text.strip_prefix(TICKET_PREFIX).unwrap_or(text);
    // Nearly all requests have a key, and need only this comparison.
    if !key.starts_with(TEST_KEY_PREFIX) {
        return None;
    }
    Scope::ALL.into_iter().find(|scope| test_key(*scope) == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{ApiKey, CHECKSUM_CHARS, KEY_CHARS, KEY_PREFIX, KeyId, checksum_of};

    #[test]
    fn test_keys_have_the_format_and_checksum_of_keys() {
        for scope in Scope::ALL {
            let key = test_key(scope);
            assert_eq!(test_key_scope(key), Some(scope));
            assert_eq!(test_key_scope(&test_ticket(scope)), Some(scope));
            assert_eq!(key.len() - TEST_KEY_PREFIX.len(), KEY_CHARS - KEY_PREFIX.len());
            let (payload, checksum) = key.split_at(key.len() - CHECKSUM_CHARS);
            assert_eq!(checksum.as_bytes(), checksum_of(payload.as_bytes()), "{key}");
            assert!(payload[TEST_KEY_PREFIX.len()..].bytes().all(|byte| byte.is_ascii_alphanumeric()), "{key}");
        }
    }

    #[test]
    fn no_test_key_is_a_key_and_no_other_text_is_a_test_key() {
        for scope in Scope::ALL {
            let key = test_key(scope);
            assert!(ApiKey::parse(key).is_none() && KeyId::parse(key).is_none());
            let with_key_prefix = key.replacen(TEST_KEY_PREFIX, KEY_PREFIX, 1);
            assert!(ApiKey::parse(&with_key_prefix).is_none(), "its checksum is of another prefix");
            for other in [&key[1..], &key[..52], &format!("{key}0"), &key.to_lowercase(), &with_key_prefix, "ipst_"] {
                assert_eq!(test_key_scope(other), None, "{other}");
            }
        }
    }
}
