//! API keys: format, checksum and digest.
//!
//! A key has 52 characters: `ips_`, a public id of 10, a secret of 32, and a checksum of 6. All but the prefix is
//! base62. The checksum is the CRC-32 of everything before it. The regular expression for secret scanners is
//! `ips_[0-9A-Za-z]{48}`.

use std::fmt;

use sha2::{Digest, Sha256};

/// The start of every key.
pub const KEY_PREFIX: &str = "ips_";
/// The start of every ticket, which a page sends in place of a key.
pub const TICKET_PREFIX: &str = "ipt_";
const ID_CHARS: usize = 10;
const SECRET_CHARS: usize = 32;
pub(crate) const CHECKSUM_CHARS: usize = 6;
const PAYLOAD_CHARS: usize = KEY_PREFIX.len() + ID_CHARS + SECRET_CHARS;
/// The length of a key.
pub const KEY_CHARS: usize = PAYLOAD_CHARS + CHECKSUM_CHARS;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The public id of a key. It is random and never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId([u8; ID_CHARS]);

impl KeyId {
    /// Parses an id, with or without the prefix `ips_`, which lists show.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let id: [u8; ID_CHARS] = text.strip_prefix(KEY_PREFIX).unwrap_or(text).as_bytes().try_into().ok()?;
        is_base62(&id).then_some(Self(id))
    }

    /// The length of an id.
    pub const CHARS: usize = ID_CHARS;

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The id as ASCII bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({})", self.as_str())
    }
}

/// SHA-256 of a complete key. A slow hash is not needed, because the secret has 190 random bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// Wraps the bytes of a stored digest.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest's bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(..)")
    }
}

/// A well-formed key, reduced to its id and its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Identifies the key record.
    pub id: KeyId,
    /// Proves the secret.
    pub digest: KeyDigest,
}

impl ApiKey {
    /// Parses a key. The checksum detects typos without I/O.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        parse_secret(text, KEY_PREFIX).map(|(id, digest)| Self { id, digest })
    }
}

/// A key in plain text. It exists from generation until its owner has seen it once.
pub struct PlaintextKey(String);

impl PlaintextKey {
    /// Generates a key with a new id from a source of random bytes.
    pub fn generate(mut random_byte: impl FnMut() -> u8) -> Self {
        let id = random_id(&mut random_byte);
        Self::with_id(&id, random_byte)
    }

    /// Generates a new secret for an existing id.
    pub fn rotate(id: KeyId, random_byte: impl FnMut() -> u8) -> Self {
        Self::with_id(&id.0, random_byte)
    }

    fn with_id(id: &[u8], random_byte: impl FnMut() -> u8) -> Self {
        Self(generate_secret(KEY_PREFIX, id, random_byte))
    }

    /// The plain text, to be shown to its owner once.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The id and digest, which the service stores.
    #[must_use]
    pub fn to_api_key(&self) -> ApiKey {
        ApiKey::parse(&self.0).expect("generated key parses")
    }
}

/// Parses a secret with this prefix, in the format of keys. The checksum detects typos without I/O.
pub(crate) fn parse_secret(text: &str, prefix: &str) -> Option<(KeyId, KeyDigest)> {
    let bytes = text.as_bytes();
    if bytes.len() != KEY_CHARS || !text.starts_with(prefix) || !is_base62(&bytes[prefix.len()..]) {
        return None;
    }
    let (payload, checksum) = bytes.split_at(PAYLOAD_CHARS);
    if checksum != checksum_of(payload) {
        return None;
    }
    let id = payload[prefix.len()..][..ID_CHARS].try_into().ok()?;
    Some((KeyId(id), KeyDigest(Sha256::digest(bytes).into())))
}

/// Generates the text of a secret with this prefix and id, in the format of keys.
pub(crate) fn generate_secret(prefix: &str, id: &[u8], mut random_byte: impl FnMut() -> u8) -> String {
    let mut text = Vec::with_capacity(KEY_CHARS);
    text.extend_from_slice(prefix.as_bytes());
    text.extend_from_slice(id);
    text.extend((0..SECRET_CHARS).map(|_| random_char(&mut random_byte)));
    let checksum = checksum_of(&text);
    text.extend_from_slice(&checksum);
    text.into_iter().map(char::from).collect()
}

/// A new random id.
pub(crate) fn random_id(random_byte: &mut impl FnMut() -> u8) -> [u8; ID_CHARS] {
    std::array::from_fn(|_| random_char(random_byte))
}

/// An unbiased base62 character. Bytes above the last multiple of 62 are drawn again.
fn random_char(random_byte: &mut impl FnMut() -> u8) -> u8 {
    loop {
        let byte = usize::from(random_byte());
        if byte < 256 / 62 * 62 {
            return BASE62[byte % 62];
        }
    }
}

pub(crate) fn checksum_of(payload: &[u8]) -> [u8; CHECKSUM_CHARS] {
    let mut remaining = crc32fast::hash(payload) as usize;
    let mut text = [b'0'; CHECKSUM_CHARS];
    for digit in text.iter_mut().rev() {
        *digit = BASE62[remaining % 62];
        remaining /= 62;
    }
    text
}

fn is_base62(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting_bytes() -> impl FnMut() -> u8 {
        let mut next = 0_u8;
        move || {
            next = next.wrapping_add(37);
            next
        }
    }

    #[test]
    fn generated_key_parses_to_its_id() {
        let clear = PlaintextKey::generate(counting_bytes());
        assert_eq!(clear.expose().len(), 52);
        assert_eq!(&clear.expose()[4..14], clear.to_api_key().id.as_str());
    }

    #[test]
    fn every_single_character_typo_is_rejected() {
        let clear = PlaintextKey::generate(counting_bytes());
        for index in 0..clear.expose().len() {
            let mut typo = clear.expose().as_bytes().to_vec();
            typo[index] = if typo[index] == b'x' { b'y' } else { b'x' };
            assert!(
                ApiKey::parse(std::str::from_utf8(&typo).expect("typo is ASCII")).is_none(),
                "typo at {index} was accepted"
            );
        }
    }

    #[test]
    fn invalid_lengths_and_characters_are_rejected() {
        let clear = PlaintextKey::generate(counting_bytes());
        let text = clear.expose();
        for invalid in ["", "ips_", &text[1..], &format!("{text}0"), &text.replace(&text[20..21], "-"), &"é".repeat(26)]
        {
            assert!(ApiKey::parse(invalid).is_none(), "{invalid:?} was accepted");
        }
    }

    #[test]
    fn rotated_key_keeps_its_id_and_changes_its_digest() {
        let old = PlaintextKey::generate(counting_bytes()).to_api_key();
        let mut shifted_bytes = counting_bytes();
        shifted_bytes();
        let new = PlaintextKey::rotate(old.id, shifted_bytes).to_api_key();
        assert_eq!(old.id, new.id);
        assert_ne!(old.digest, new.digest);
    }

    #[test]
    fn key_debug_output_omits_the_secret() {
        let clear = PlaintextKey::generate(counting_bytes());
        assert!(!format!("{:?}", clear.to_api_key()).contains(&clear.expose()[14..]));
    }
}
