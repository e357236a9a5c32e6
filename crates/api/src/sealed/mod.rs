//! Sealed tokens: data for a short time that a client keeps and sends back, and can neither read nor change. No node stores
//! them.
//!
//! A token is the number of its period, a nonce and the ciphertext (AES-256-GCM-SIV). Each purpose and each period has a
//! separate subkey. The purpose, the base URL and a context of the caller are authenticated, but not part of the token.

#[cfg(test)]
#[path = "tests/forgeries.rs"]
pub(crate) mod forgeries;
mod period;
mod sealing_keys;

use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::Prk;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

pub(crate) use self::period::CLOCK_TOLERANCE_S;
pub use self::period::TOKEN_LIFETIME_S_MAX;
use self::period::{accepted_periods, period_byte, period_of};
use self::sealing_keys::LocalKeys;
pub use self::sealing_keys::{SealingKeys, SealingKeysError};

/// The length of a 256-bit key.
const SUBKEY_BYTES: usize = 32;

/// What a token is for. A token opens only for the purpose that it was sealed for.
#[derive(Clone, Copy)]
pub(crate) struct Purpose(pub(crate) &'static str);

/// Seals and opens tokens.
pub struct TokenSealer {
    base_url: String,
    keys: Mutex<KeySource>,
}

enum KeySource {
    /// The keys of a file that all nodes have.
    Shared(SealingKeys),
    /// Keys that only this process has.
    Local(LocalKeys),
}

impl TokenSealer {
    /// Nodes with the same base URL and the same keys open each other's tokens. Without keys, no other node and no later
    /// process opens them.
    #[must_use]
    pub fn new(base_url: String, shared_keys: Option<SealingKeys>) -> Self {
        let keys = shared_keys.map_or_else(|| KeySource::Local(LocalKeys::generate()), KeySource::Shared);
        Self { base_url, keys: Mutex::new(keys) }
    }

    /// Uses other shared keys.
    pub fn replace_keys(&self, keys: SealingKeys) {
        *self.lock() = KeySource::Shared(keys);
    }

    /// Forgets the keys of this process whose tokens have expired, also if no token is sealed or opened.
    pub fn forget_old_keys(&self, now_s: u64) {
        if let KeySource::Local(keys) = &mut *self.lock() {
            keys.renew(now_s);
        }
    }

    /// Seals a token. It opens only with the same context.
    pub(crate) fn seal(
        &self,
        purpose: Purpose,
        context: &[u8],
        content: &[u8],
        now_s: u64,
    ) -> Result<String, Unspecified> {
        let (period, master_key) = match &mut *self.lock() {
            KeySource::Shared(keys) => (period_of(now_s), keys.sealing_key().clone()),
            KeySource::Local(keys) => keys.sealing_key(now_s),
        };
        let mut sealed = content.to_vec();
        let associated_data = Aad::from(self.associated_data(purpose, context));
        let nonce = subkey(&master_key, purpose, period)?.seal_in_place_append_tag(associated_data, &mut sealed)?;
        Ok(URL_SAFE_NO_PAD.encode([&[period_byte(period)][..], nonce.as_ref(), &sealed].concat()))
    }

    /// The content of a token that any of the accepted keys has sealed, for this purpose and with this context.
    pub(crate) fn open(&self, purpose: Purpose, context: &[u8], token: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let token = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (&sealed_in, token) = token.split_first()?;
        let (nonce, sealed) = token.split_at_checked(NONCE_LEN)?;
        let period = accepted_periods(now_s).find(|period| period_byte(*period) == sealed_in)?;
        let master_keys = match &mut *self.lock() {
            KeySource::Shared(keys) => keys.accepted_keys().to_vec(),
            KeySource::Local(keys) => keys.key_of(period, now_s).into_iter().collect(),
        };
        let associated_data = self.associated_data(purpose, context);
        master_keys.iter().find_map(|master_key| {
            // A failed attempt may overwrite the bytes.
            let mut content = sealed.to_vec();
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let subkey = subkey(master_key, purpose, period).ok()?;
            let length = subkey.open_in_place(nonce, Aad::from(&associated_data), &mut content).ok()?.len();
            content.truncate(length);
            Some(content)
        })
    }

    /// Neither a purpose nor a URL contains a zero byte, so no two sets of parts have the same bytes.
    fn associated_data(&self, purpose: Purpose, context: &[u8]) -> Vec<u8> {
        [purpose.0.as_bytes(), b"\0", self.base_url.as_bytes(), b"\0", context].concat()
    }

    fn lock(&self) -> MutexGuard<'_, KeySource> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn subkey(master_key: &Prk, purpose: Purpose, period: u64) -> Result<RandomizedNonceKey, Unspecified> {
    let mut bytes = [0; SUBKEY_BYTES];
    let info: [&[u8]; 3] = [purpose.0.as_bytes(), b"\0", &period.to_be_bytes()];
    master_key.expand(&info, &AES_256_GCM_SIV)?.fill(&mut bytes)?;
    RandomizedNonceKey::new(&AES_256_GCM_SIV, &bytes)
}

#[cfg(test)]
mod tests {
    use super::forgeries::forgeries_of;
    use super::period::PERIOD_S;
    use super::*;

    const PURPOSE: Purpose = Purpose("test");
    const NOW_S: u64 = 1_800_000_000;
    const OLD: &str = "0000000000000000000000000000000000000000000000000000000000000001";
    const NEW: &str = "0000000000000000000000000000000000000000000000000000000000000002";

    fn shared(file: &str) -> TokenSealer {
        TokenSealer::new("https://ip.example.com".to_owned(), Some(SealingKeys::parse(file).expect("valid keys")))
    }

    fn seal(sealer: &TokenSealer, now_s: u64) -> String {
        sealer.seal(PURPOSE, b"context", b"content", now_s).expect("token is sealed")
    }

    fn opens(sealer: &TokenSealer, token: &str, now_s: u64) -> bool {
        let content = sealer.open(PURPOSE, b"context", token.as_bytes(), now_s);
        assert!(content.as_deref().is_none_or(|content| content == b"content"));
        content.is_some()
    }

    #[test]
    fn token_opens_only_for_its_purpose_context_and_base_url() {
        let sealer = shared(&format!("seal {OLD}"));
        let token = seal(&sealer, NOW_S);
        assert!(opens(&sealer, &token, NOW_S));
        assert!(token.len() == 48 && !token.contains("content"), "{token}");
        assert!(seal(&sealer, NOW_S) != token, "the nonce is random");
        for (purpose, context) in [("ticket", "context"), ("test", "other"), ("test", ""), ("test\0", "context")] {
            assert_eq!(sealer.open(Purpose(purpose), context.as_bytes(), token.as_bytes(), NOW_S), None, "{purpose}");
        }
        let keys = SealingKeys::parse(&format!("seal {OLD}")).expect("valid keys");
        assert!(!opens(&TokenSealer::new("https://ip.example.org".to_owned(), Some(keys)), &token, NOW_S));
    }

    #[test]
    fn forged_and_changed_tokens_never_open() {
        let sealer = shared(&format!("seal {OLD}\naccept {NEW}"));
        for forged in forgeries_of(&seal(&sealer, NOW_S)) {
            assert!(!opens(&sealer, &forged, NOW_S), "{forged}");
        }
    }

    #[test]
    fn keys_rotate_without_a_token_that_no_node_opens() {
        let accept = |sealed: &str, accepted: &str| shared(&format!("seal {sealed}\naccept {accepted}"));
        let steps =
            [shared(&format!("seal {OLD}")), accept(OLD, NEW), accept(NEW, OLD), shared(&format!("seal {NEW}"))];
        for [before, after] in [[&steps[0], &steps[1]], [&steps[1], &steps[2]]] {
            for (sealed_by, opened_by) in [(before, after), (after, before), (after, after)] {
                assert!(opens(opened_by, &seal(sealed_by, NOW_S), NOW_S));
            }
        }
        assert!(opens(&steps[2], &seal(&steps[3], NOW_S), NOW_S) && opens(&steps[3], &seal(&steps[2], NOW_S), NOW_S));
        assert!(!opens(&steps[3], &seal(&steps[1], NOW_S), NOW_S), "the old key is retired");
        let reloaded = shared(&format!("seal {OLD}"));
        reloaded.replace_keys(SealingKeys::parse(&format!("seal {NEW}")).expect("valid keys"));
        assert!(opens(&steps[3], &seal(&reloaded, NOW_S), NOW_S));
    }

    #[test]
    fn token_opens_at_any_second_of_its_life_and_no_key_opens_for_an_hour() {
        let start_s = NOW_S / PERIOD_S * PERIOD_S;
        for sealed_at in [start_s, start_s + 1, start_s + PERIOD_S - 1] {
            let (shared, local) = (shared(&format!("seal {OLD}")), TokenSealer::new(String::new(), None));
            let tokens = [seal(&shared, sealed_at), seal(&local, sealed_at)];
            for age_s in 0..=TOKEN_LIFETIME_S_MAX + CLOCK_TOLERANCE_S {
                assert!(opens(&shared, &tokens[0], sealed_at + age_s), "{age_s}");
                assert!(opens(&local, &tokens[1], sealed_at + age_s), "{age_s}");
            }
            assert!(opens(&shared, &tokens[0], sealed_at - CLOCK_TOLERANCE_S), "this node's clock is behind");
            assert!(!opens(&shared, &tokens[0], sealed_at + 3_600));
            assert!(!opens(&local, &tokens[1], sealed_at + 3_600));
        }
    }

    #[test]
    fn local_keys_differ_between_processes_and_are_forgotten() {
        let (first, second) = (TokenSealer::new(String::new(), None), TokenSealer::new(String::new(), None));
        let token = seal(&first, NOW_S);
        assert!(opens(&first, &token, NOW_S) && !opens(&second, &token, NOW_S));
        first.forget_old_keys(NOW_S + PERIOD_S + TOKEN_LIFETIME_S_MAX + CLOCK_TOLERANCE_S + 1);
        assert!(!opens(&first, &token, NOW_S), "also if the clock is set back");
        assert!(opens(&first, &seal(&first, NOW_S + 9 * PERIOD_S), NOW_S + 9 * PERIOD_S));
    }
}
