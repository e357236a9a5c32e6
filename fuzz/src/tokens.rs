//! Sealed tokens, and the file with their keys.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use sealed::{Purpose, SealingKeys, TokenSealer};

#[path = "../../crates/api/src/sealed/mod.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "keys are neither replaced nor forgotten here"))]
#[expect(unused_imports, reason = "tokens have no lifetime here")]
mod sealed;

const PURPOSE: Purpose = Purpose("fuzz");
const NOW_S: u64 = 1_800_000_000;

static SEALER: LazyLock<TokenSealer> = LazyLock::new(|| TokenSealer::new("https://ip.example".to_owned(), None));

/// A token returns its content for its context. With any other bytes, it does not open. A file with keys is either valid and
/// seals, or an error.
pub(crate) fn check_sealed_token(bytes: &[u8]) {
    let token = SEALER.seal(PURPOSE, bytes, bytes, NOW_S).expect("token is sealed");
    assert_eq!(SEALER.open(PURPOSE, bytes, token.as_bytes(), NOW_S).as_deref(), Some(bytes));
    assert_eq!(SEALER.open(PURPOSE, bytes, bytes, NOW_S), None);

    let mut changed = URL_SAFE_NO_PAD.decode(&token).expect("valid Base64");
    let length = changed.len();
    for (index, byte) in bytes.iter().enumerate() {
        changed[index % length] ^= byte;
    }
    let changed = URL_SAFE_NO_PAD.encode(changed);
    assert!(changed == token || SEALER.open(PURPOSE, bytes, changed.as_bytes(), NOW_S).is_none());

    if let Ok(keys) = SealingKeys::parse(&String::from_utf8_lossy(bytes)) {
        let sealer = TokenSealer::new(String::new(), Some(keys));
        let token = sealer.seal(PURPOSE, b"", b"content", NOW_S).expect("token is sealed");
        assert!(sealer.open(PURPOSE, b"", token.as_bytes(), NOW_S).is_some());
        assert!(SEALER.open(PURPOSE, b"", token.as_bytes(), NOW_S).is_none());
    }
}
