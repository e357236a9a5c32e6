//! Sealed tokens and tickets, and the file with their keys.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ipseity_domain::TICKET_PREFIX;

use crate::sealed::{Purpose, SealingKeys, TokenSealer};

#[path = "../../crates/api/src/tickets/ticket.rs"]
#[expect(dead_code, reason = "tickets are not used here")]
mod ticket;

use ticket::Ticket;

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

/// Content that another version may have sealed is a ticket with the same content, or none. Other bytes are none.
pub(crate) fn check_ticket(bytes: &[u8]) {
    let open = |text: &str| Ticket::open(&SEALER, text, NOW_S);
    let sealed = SEALER.seal(Purpose("ticket"), b"", bytes, NOW_S).expect("token is sealed");
    if let Some(ticket) = open(&format!("{TICKET_PREFIX}{sealed}")) {
        let text = ticket.seal(&SEALER, NOW_S).expect("ticket is sealed");
        assert_eq!(open(&text), Some(ticket));
    }
    assert_eq!(open(&String::from_utf8_lossy(bytes)), None);
    assert_eq!(open(&format!("{TICKET_PREFIX}{}", String::from_utf8_lossy(bytes))), None);
}
