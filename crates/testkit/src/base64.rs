//! Base64 (RFC 4648) for searches.

/// The characters that are the same wherever the bytes start within a longer encoded text.
pub(crate) fn base64_substrings(bytes: &[u8]) -> Vec<Vec<u8>> {
    let stable_chars = |offset: usize| {
        let encoded = base64(&[&vec![0; offset], bytes].concat());
        let first = (offset * 8).div_ceil(6);
        let end = (offset + bytes.len()) * 8 / 6;
        encoded[first..end].to_vec()
    };
    (0..3).flat_map(|offset| both_alphabets(stable_chars(offset))).collect()
}

pub(crate) fn base64_encodings(bytes: &[u8]) -> Vec<Vec<u8>> {
    both_alphabets(base64(bytes))
}

fn both_alphabets(encoded: Vec<u8>) -> Vec<Vec<u8>> {
    let url_safe: Vec<u8> = encoded
        .iter()
        .map(|&character| match character {
            b'+' => b'-',
            b'/' => b'_',
            other => other,
        })
        .collect();
    if url_safe == encoded { vec![encoded] } else { vec![encoded, url_safe] }
}

/// Base64 without padding.
#[must_use]
pub fn base64(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encode = |chunk: &[u8]| {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        (0..=chunk.len()).map(|index| ALPHABET[(bits >> (18 - 6 * index) & 63) as usize]).collect::<Vec<u8>>()
    };
    bytes.chunks(3).flat_map(encode).collect()
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
