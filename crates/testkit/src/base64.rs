//! Base64 in the forms that a search has to look for.

use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD, Engine as _};

/// The characters that do not depend on what surrounds the bytes, for each of the three offsets within a longer text.
pub(crate) fn base64_substrings(bytes: &[u8]) -> Vec<Vec<u8>> {
    let stable_chars = |offset: usize| {
        let stable = (offset * 8).div_ceil(6)..(offset + bytes.len()) * 8 / 6;
        let encodings = base64_encodings(&[&vec![0; offset], bytes].concat());
        encodings.into_iter().map(move |encoded| encoded[stable.clone()].to_vec())
    };
    let mut substrings: Vec<_> = (0..3).flat_map(stable_chars).collect();
    substrings.dedup();
    substrings
}

/// Both alphabets, without padding; one entry if they agree.
pub(crate) fn base64_encodings(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut encodings = vec![base64(bytes), BASE64_URL_SAFE_NO_PAD.encode(bytes).into_bytes()];
    encodings.dedup();
    encodings
}

/// Base64 in the standard alphabet, without padding.
#[must_use]
pub fn base64(bytes: &[u8]) -> Vec<u8> {
    BASE64_STANDARD_NO_PAD.encode(bytes).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_rfc_4648_examples() {
        for (plain, encoded) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(plain.as_bytes()), encoded.as_bytes());
        }
    }
}
