//! When the keys of a provider are read again.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::signing_keys::{JwkSet, SigningAlgorithm, SigningKeyCache};
use super::signer::TokenSigner;
use super::{IdTokenError, OidcError};

struct KeySource {
    cache: SigningKeyCache,
    start: Instant,
    published: RefCell<Option<&'static str>>,
    fetches: RefCell<u32>,
}

impl KeySource {
    fn publish(id: &'static str) -> Self {
        Self {
            cache: SigningKeyCache::default(),
            start: Instant::now(),
            published: RefCell::new(Some(id)),
            fetches: RefCell::new(0),
        }
    }

    /// Finds a key at a time. Returns whether it was found, and how often the keys were read so far.
    async fn find(&self, id: &str, after_s: u64) -> (Result<(), OidcError>, u32) {
        let fetch = async {
            *self.fetches.borrow_mut() += 1;
            let id = self.published.borrow().ok_or(OidcError::MalformedResponse("key set"))?;
            let jwks = json!({ "keys": [TokenSigner::es256().jwk(id)] });
            Ok(serde_json::from_value::<JwkSet>(jwks).expect("set is valid"))
        };
        let now = self.start + Duration::from_secs(after_s);
        let outcome = self.cache.find(Some(id), SigningAlgorithm::Es256, now, fetch).await;
        (outcome.map(drop), *self.fetches.borrow())
    }
}

#[tokio::test]
async fn unknown_key_is_read_again_at_most_every_ten_seconds() {
    let source = KeySource::publish("1");
    let unknown = |outcome| matches!(outcome, Err(OidcError::IdToken(IdTokenError::UnknownKey)));
    assert!(matches!(source.find("1", 0).await, (Ok(()), 1)));
    assert!(matches!(source.find("1", 1).await, (Ok(()), 1)), "the keys are cached");
    // The provider rotates its keys.
    source.published.replace(Some("2"));
    assert!(matches!(source.find("1", 1).await, (Ok(()), 1)));
    assert!(matches!(source.find("2", 2).await, (Ok(()), 2)));
    let (outcome, fetches) = source.find("1", 3).await;
    assert!(unknown(outcome) && fetches == 2, "the old key is not published anymore");
    source.published.replace(Some("3"));
    let (outcome, fetches) = source.find("3", 11).await;
    assert!(unknown(outcome) && fetches == 2);
    assert!(matches!(source.find("2", 11).await, (Ok(()), 2)));
    assert!(matches!(source.find("3", 12).await, (Ok(()), 3)));
}

#[tokio::test]
async fn keys_are_read_again_after_a_quarter_of_an_hour() {
    let source = KeySource::publish("1");
    assert!(matches!(source.find("1", 0).await, (Ok(()), 1)));
    assert!(matches!(source.find("1", 899).await, (Ok(()), 1)));
    source.published.replace(None);
    assert!(
        matches!(source.find("1", 900).await, (Err(OidcError::MalformedResponse(_)), 2)),
        "a removed key is not used"
    );
    source.published.replace(Some("1"));
    assert!(matches!(source.find("1", 901).await, (Ok(()), 3)));
}
