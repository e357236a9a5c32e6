//! Forged and changed tokens for tests. `IPSEITY_FORGERIES` sets their number.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// More than a client could try before its connection is closed.
const FORGERIES: usize = 50_000;

/// Tokens with a changed bit, fewer or more bytes, or other content, and every shorter text.
pub(crate) fn forgeries_of(token: &str) -> impl Iterator<Item = String> {
    let number = std::env::var("IPSEITY_FORGERIES").map_or(FORGERIES, |text| text.parse().expect("valid number"));
    let bytes = URL_SAFE_NO_PAD.decode(token).expect("valid Base64");
    let mut random = fastrand::Rng::with_seed(7);
    let changed = (0..number).map(move |number| {
        let mut forged = bytes.clone();
        match number % 4 {
            0 => forged[random.usize(..bytes.len())] ^= 1 << random.usize(..8),
            1 => forged.truncate(random.usize(..bytes.len())),
            2 => forged.push(random.u8(..)),
            _ => random.fill(&mut forged[1..]),
        }
        URL_SAFE_NO_PAD.encode(&forged)
    });
    let shorter = (0..token.len()).map(|end| token[..end].to_owned()).collect::<Vec<_>>();
    let others = ["=", "ä", " ", &format!("{token}="), &format!(" {token}")].map(str::to_owned);
    changed.chain(shorter).chain(others)
}
