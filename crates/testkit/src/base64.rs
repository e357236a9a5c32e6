//! Base64 (RFC 4648), as far as searches need it.

/// The characters that are certain wherever the bytes begin within a longer encoded text.
pub(crate) fn base64_anywhere(bytes: &[u8]) -> Vec<Vec<u8>> {
    let certain = |before: usize| {
        let encoded = base64(&[&vec![0; before], bytes].concat());
        let first = (before * 8).div_ceil(6);
        let end = (before + bytes.len()) * 8 / 6;
        encoded[first..end].to_vec()
    };
    (0..3).flat_map(|before| both_alphabets(certain(before))).collect()
}

pub(crate) fn base64_whole(bytes: &[u8]) -> Vec<Vec<u8>> {
    both_alphabets(base64(bytes))
}

fn both_alphabets(encoded: Vec<u8>) -> Vec<Vec<u8>> {
    let for_urls: Vec<u8> = encoded
        .iter()
        .map(|&character| match character {
            b'+' => b'-',
            b'/' => b'_',
            other => other,
        })
        .collect();
    if for_urls == encoded { vec![encoded] } else { vec![encoded, for_urls] }
}

/// Base64 without padding.
#[must_use]
pub fn base64(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encode = |chunk: &[u8]| {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        (0..=chunk.len()).map(|at| ALPHABET[(bits >> (18 - 6 * at) & 63) as usize]).collect::<Vec<u8>>()
    };
    bytes.chunks(3).flat_map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_as_in_the_rfc() {
        for (plain, encoded) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(plain.as_bytes()), encoded.as_bytes());
        }
    }
}
