//! Email addresses of accounts, and names of keys.

use std::fmt;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};

/// Maximum length of an email address (RFC 5321, section 4.5.3.1.3, without the brackets).
const EMAIL_BYTES_MAX: usize = 254;
/// Maximum length of the part before the `@` (RFC 5321, section 4.5.3.1.1).
const EMAIL_LOCAL_BYTES_MAX: usize = 64;
/// Maximum length of an address as typed. A character of a domain has up to four bytes, and usually more than one in ASCII form.
const EMAIL_INPUT_BYTES_MAX: usize = 4 * EMAIL_BYTES_MAX;
/// Symbols that are valid before the `@` without quotes (RFC 5322, section 3.2.3).
const ATOM_SYMBOLS: &[u8] = b"!#$%&'*+-/=?^_`{|}~";
/// Maximum length of a key's name.
const KEY_NAME_CHARS_MAX: usize = 100;

/// An email address in its only form: `name@domain` in ASCII and lower case, with an international domain in its `xn--` form.
///
/// Two addresses are the same if they have the same bytes. Case is folded only here: the result of PostgreSQL's `lower()`
/// depends on the locale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmailAddress(String);

impl EmailAddress {
    /// Parses an address, folds its case and converts its domain to ASCII (UTS #46). It may still not exist.
    ///
    /// Display names, comments, quotes, IP addresses and names with letters outside of ASCII are rejected: they are
    /// further spellings of an address, or carry text that a stranger chose into an email.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() > EMAIL_INPUT_BYTES_MAX {
            return None;
        }
        let (local, domain) = text.split_once('@')?;
        if !is_dot_atom(local) || local.len() > EMAIL_LOCAL_BYTES_MAX {
            return None;
        }
        let address = format!("{}@{}", local.to_ascii_lowercase(), domain_to_ascii(domain)?);
        (address.len() <= EMAIL_BYTES_MAX).then_some(Self(address))
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

/// Whether the text is atoms with single dots between them (RFC 5322, section 3.2.3).
fn is_dot_atom(text: &str) -> bool {
    let is_atom_byte = |byte: u8| byte.is_ascii_alphanumeric() || ATOM_SYMBOLS.contains(&byte);
    text.split('.').all(|atom| !atom.is_empty() && atom.bytes().all(is_atom_byte))
}

/// The domain in lower case and ASCII. `None` for an invalid one, and for an IP address.
fn domain_to_ascii(domain: &str) -> Option<String> {
    let domain = Uts46::new()
        .to_ascii(domain.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::Verify)
        .ok()?;
    let top_level = domain.rsplit('.').next()?;
    (!top_level.bytes().all(|byte| byte.is_ascii_digit())).then(|| domain.into_owned())
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

    fn parsed(text: &str) -> Option<String> {
        EmailAddress::parse(text).map(|address| address.to_string())
    }

    #[track_caller]
    fn assert_rejected(texts: &[&str]) {
        for text in texts {
            assert_eq!(parsed(text), None, "{text:?}");
        }
    }

    #[test]
    fn email_address_is_trimmed_and_in_lower_case() {
        for (typed, expected) in [
            (" a@b.example\n", "a@b.example"),
            ("KIM@Divine.EXAMPLE", "kim@divine.example"),
            ("first.last+tag@sub-domain.example", "first.last+tag@sub-domain.example"),
            ("!#$%&'*+-/=?^_`{|}~@b.example", "!#$%&'*+-/=?^_`{|}~@b.example"),
            ("root@localhost", "root@localhost"),
            ("a@ab--cd.1.example", "a@ab--cd.1.example"),
        ] {
            assert_eq!(parsed(typed).as_deref(), Some(expected), "{typed:?}");
            assert_eq!(parsed(expected).as_deref(), Some(expected), "the form is stable");
        }
        assert_rejected(&["", "a", "@b.example", "a@", "a@b@c", "a b@c", "a\n@c", "a@b c", "a@c\r\nBcc: d@e", "a\0@c"]);
        assert_rejected(&[".a@b.example", "a.@b.example", "a..b@b.example"]);
    }

    #[test]
    fn email_address_has_no_name_comment_or_quotes() {
        assert_rejected(&[
            "Prize<target@victim.example>",
            "\"Win.a.prize:http://evil.example/0\"<target@victim.example>",
            "a0.b<target@victim.example>",
            "<target@victim.example>",
            "\"0x\"@victim.example",
            "\"a@b\"@victim.example",
            "target(prize)@victim.example",
            "(prize)target@victim.example",
            "target@victim.example(prize)",
            "target@(prize)victim.example",
            "target@victim.example,other@victim.example",
            "target@victim.example;other",
            "group:target@victim.example",
            "tar\\get@victim.example",
            "tar[get]@victim.example",
        ]);
    }

    #[test]
    fn look_alike_letters_are_another_address_or_none() {
        // PostgreSQL's lower() maps both to ASCII letters. For domains, UTS #46 does so with the Kelvin sign only.
        assert_eq!(parsed("kim@d\u{130}vine.example").as_deref(), Some("kim@xn--divine-qyd.example"));
        assert_eq!(parsed("kim@\u{212a}iosk.example").as_deref(), Some("kim@kiosk.example"));
        assert_rejected(&["k\u{130}m@divine.example", "\u{212a}im@divine.example", "k\u{131}m@divine.example"]);
        assert_rejected(&["k\u{ef}m@divine.example", "kim\u{200b}@divine.example", "\u{ff4b}im@divine.example"]);
    }

    #[test]
    fn international_domain_is_converted_to_ascii() {
        for typed in [
            "ada@b\u{fc}cher.example",
            "ada@B\u{dc}CHER.Example",
            "ada@bu\u{308}cher.example",
            "ada@XN--BCHER-KVA.example",
            "ada@b\u{fc}cher\u{3002}example",
            "ada@b\u{fc}\u{ad}cher.example",
        ] {
            assert_eq!(parsed(typed).as_deref(), Some("ada@xn--bcher-kva.example"), "{typed:?}");
        }
        assert_eq!(parsed("ada@fa\u{df}.example").as_deref(), Some("ada@xn--fa-hia.example"));
        assert_rejected(&["ada@xn--.example", "ada@xn--a.example", "ada@a\u{ff20}b.example", "ada\u{ff20}b.example"]);
        assert_rejected(&["ada@b\u{fc}cher.example.", "ada@.example", "ada@a..example", "ada@\u{ad}.example"]);
        assert_rejected(&["ada@-a.example", "ada@a-.example", "ada@a_b.example", "ada@a/b.example", "ada@a:25"]);
        assert_rejected(&["ada@192.0.2.1", "ada@[192.0.2.1]", "ada@[IPv6:2001:db8::1]", "ada@1", "ada@\u{661}.1"]);
    }

    #[test]
    fn email_address_has_at_most_254_bytes() {
        let local = "a".repeat(EMAIL_LOCAL_BYTES_MAX);
        let domain = |last: usize| format!("{}.{}.{}", "b".repeat(63), "c".repeat(63), "d".repeat(last));
        let longest = format!("{local}@{}", domain(61));
        assert_eq!((longest.len(), parsed(&longest)), (EMAIL_BYTES_MAX, Some(longest.clone())));
        assert_rejected(&[&format!("{local}@{}", domain(62)), &format!("{local}a@b.example")]);
        assert_rejected(&[&format!("a@{}.example", "b".repeat(64)), &format!("a@{}", "b.".repeat(100_000))]);
        let wide = format!("a@{}.example", "\u{4e2d}".repeat(50));
        assert!(wide.len() > 150 && parsed(&wide).is_some_and(|address| address.len() < 80), "counted in ASCII form");
    }

    #[test]
    fn key_name_has_1_to_100_characters() {
        assert!(KeyName::parse("  web shop ").is_some());
        for invalid in ["", "  ", "a\tb", &"x".repeat(101)] {
            assert!(KeyName::parse(invalid).is_none(), "{invalid:?} was accepted");
        }
    }
}
