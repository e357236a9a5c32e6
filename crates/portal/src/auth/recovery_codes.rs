//! Recovery codes: they replace the second factor once, when its device is lost.

use data_encoding::BASE32_NOPAD;
use sha2::{Digest, Sha256};

const CODES: usize = 10;
/// 120 bits: too many to guess, even from a digest.
const CODE_BYTES: usize = 15;
const GROUP_CHARS: usize = 4;

/// New codes, for their owner, and their digests, to be stored.
pub(crate) struct RecoveryCodes {
    pub(crate) codes: Vec<String>,
    pub(crate) digests: Vec<[u8; 32]>,
}

impl RecoveryCodes {
    pub(crate) fn generate() -> Self {
        let codes: Vec<String> = (0..CODES).map(|_| generate_code()).collect();
        let digests = codes.iter().map(|code| digest(code)).collect();
        Self { codes, digests }
    }
}

fn generate_code() -> String {
    let mut bytes = [0; CODE_BYTES];
    getrandom::fill(&mut bytes).expect("the system provides random bytes");
    let text = BASE32_NOPAD.encode(&bytes).to_lowercase();
    text.as_bytes().chunks(GROUP_CHARS).map(String::from_utf8_lossy).collect::<Vec<_>>().join("-")
}

/// The digest of a code as typed: with any letter case, and with or without separators.
pub(crate) fn digest(code: &str) -> [u8; 32] {
    let code: String = code.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    Sha256::digest(code).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_recognized_as_people_type_it() {
        let RecoveryCodes { codes, digests } = RecoveryCodes::generate();
        assert_eq!((codes.len(), digests.len()), (10, 10));
        for (code, expected) in codes.iter().zip(&digests) {
            assert_eq!(code.len(), 29, "{code}");
            for typed in
                [code.clone(), code.to_uppercase(), code.replace('-', ""), format!(" {} ", code.replace('-', " "))]
            {
                assert_eq!(digest(&typed), *expected, "{typed}");
            }
        }
        let distinct: std::collections::HashSet<_> = digests.iter().collect();
        assert_eq!(distinct.len(), 10);
    }
}
