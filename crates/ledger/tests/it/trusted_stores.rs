//! Records of another PostgreSQL database, and other Redis data sets, are not trusted.

use std::sync::Arc;

use ipseity_domain::{ApiKey, KeyFlags, KeyRecord};
use ipseity_ledger::{
    AppliedRestrictions, ChargeId, Ledger, LedgerError, LedgerOptions, Published, TrustedStores, Verdict,
};
use ipseity_testkit::{Redis, RedisOptions};

use crate::fixture::{LedgerFixture, REQUEST_TIMEOUT, admitted_count, arrived_now, new_key};

/// A node and the database that it uses.
fn ledger_of(fixture: &LedgerFixture, fingerprint: Option<[u8; 8]>) -> (Ledger, Arc<TrustedStores>) {
    let store = Arc::new(TrustedStores::default());
    store.set_database(fingerprint);
    let options =
        LedgerOptions { trusted: Arc::clone(&store), ..LedgerOptions::new(fixture.redis.url(), REQUEST_TIMEOUT) };
    (Ledger::new(&options).expect("valid URL"), store)
}

async fn charge(ledger: &Ledger, key: &ApiKey) -> Verdict {
    ledger.charge(key, ChargeId::next(), arrived_now(), AppliedRestrictions::default()).await.expect("charge succeeds")
}

async fn fill(ledger: &Ledger, key: &ApiKey, key_record: &KeyRecord) {
    let verdict = charge(ledger, key).await;
    let Verdict::Unknown(fence) = verdict else { panic!("record exists: {verdict:?}") };
    assert!(ledger.fill(key_record, &fence).await.expect("fill succeeds"));
}

#[tokio::test(flavor = "multi_thread")]
async fn record_of_another_database_is_filled_again() {
    let fixture = LedgerFixture::open().await;
    let (ledger, store) = ledger_of(&fixture, Some(*b"database"));
    let (key, key_record) = new_key(10);
    fill(&ledger, &key, &key_record).await;
    assert_eq!(admitted_count(&charge(&ledger, &key).await), 1);

    // The promoted replica lacks generation 2, in which the key was deactivated.
    let inactive =
        KeyRecord { flags: KeyFlags { deactivated: true, paused: false }, generation: 2, ..key_record.clone() };
    assert_eq!(ledger.publish(&inactive).await.expect("publish succeeds"), Published::Applied);
    store.set_database(Some(*b"promoted"));
    fill(&ledger, &key, &key_record).await;
    assert_eq!(admitted_count(&charge(&ledger, &key).await), 2, "the counts stay");
    let inactive = KeyRecord { daily_limit: 20, ..inactive };
    assert_eq!(ledger.publish(&inactive).await.expect("publish succeeds"), Published::Applied);
    assert!(matches!(charge(&ledger, &key).await, Verdict::Inactive(_)), "a later change has an effect");
}

#[tokio::test(flavor = "multi_thread")]
async fn publish_invalidates_a_record_of_another_database() {
    let fixture = LedgerFixture::open().await;
    let (ledger, store) = ledger_of(&fixture, Some(*b"database"));
    let (key, key_record) = new_key(10);
    fill(&ledger, &key, &KeyRecord { generation: 9, ..key_record.clone() }).await;
    store.set_database(Some(*b"promoted"));
    let inactive = KeyRecord { flags: KeyFlags { deactivated: true, paused: false }, generation: 2, ..key_record };
    assert_eq!(ledger.publish(&inactive).await.expect("publish succeeds"), Published::Applied);
    store.set_database(Some(*b"database"));
    assert!(matches!(charge(&ledger, &key).await, Verdict::Unknown(_)), "a node that has not noticed the failover");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_without_a_database_trusts_records_of_any() {
    let fixture = LedgerFixture::open().await;
    let (ledger, _) = ledger_of(&fixture, Some(*b"database"));
    let (unaware, store) = ledger_of(&fixture, None);
    let (key, key_record) = new_key(10);
    fill(&ledger, &key, &key_record).await;
    assert_eq!(admitted_count(&charge(&unaware, &key).await), 1);
    store.set_database(Some(*b"database"));
    assert_eq!(admitted_count(&charge(&unaware, &key).await), 2);
    store.set_database(Some(*b"promoted"));
    assert!(matches!(charge(&unaware, &key).await, Verdict::Unknown(_)));
    // A record that was filled by a node without a database.
    let (other_key, other_record) = new_key(10);
    store.set_database(None);
    fill(&unaware, &other_key, &other_record).await;
    assert_eq!(admitted_count(&charge(&unaware, &other_key).await), 1);
    fill(&ledger, &other_key, &other_record).await;
    assert_eq!(admitted_count(&charge(&unaware, &other_key).await), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn fill_with_data_of_a_previous_database_is_rejected() {
    let fixture = LedgerFixture::open().await;
    let (ledger, store) = ledger_of(&fixture, Some(*b"database"));
    let (key, key_record) = new_key(10);
    let Verdict::Unknown(fence) = charge(&ledger, &key).await else { panic!("record exists") };
    store.set_database(Some(*b"promoted"));
    assert!(!ledger.fill(&key_record, &fence).await.expect("Redis answers"));
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_of_one_server_are_different_data_sets() {
    let fixture = LedgerFixture::open().await;
    let identity_of = async |url: String| {
        let ledger = Ledger::new(&LedgerOptions::new(url, REQUEST_TIMEOUT)).expect("valid URL");
        ledger.identity().await.expect("Redis answers").data_set_id
    };
    let urls = ["", "/0", "/1"].map(|database| format!("{}{database}", fixture.redis.url().trim_end_matches('/')));
    let [default, first, second] = urls;
    let first = identity_of(first).await;
    assert_eq!(identity_of(default).await, first);
    assert_ne!(identity_of(second).await, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn demoted_primary_has_no_identity() {
    let (fixture, other) = (LedgerFixture::open().await, LedgerFixture::open().await);
    let (ledger, _) = ledger_of(&fixture, None);
    ledger.identity().await.expect("Redis answers");
    fixture.redis.replicate_from(&other.redis).await.expect("replica is in sync");
    assert!(matches!(ledger.identity().await, Err(LedgerError::Unreachable)));
}

#[tokio::test(flavor = "multi_thread")]
async fn trusted_primary_is_preferred() {
    let (first, second) = (LedgerFixture::open().await, LedgerFixture::open().await);
    let trusted = Arc::new(TrustedStores::default());
    let url = format!("{},{}", first.redis.url(), second.redis.url());
    let ledger_with = || {
        let options = LedgerOptions { trusted: Arc::clone(&trusted), ..LedgerOptions::new(&url, REQUEST_TIMEOUT) };
        Ledger::new(&options).expect("valid URL")
    };
    let (first_id, second_id) = (data_set_id(&first.ledger).await, data_set_id(&second.ledger).await);
    assert_eq!(data_set_id(&ledger_with()).await, first_id, "the first, if none is trusted");
    trusted.set_data_set(&second_id);
    assert_eq!(data_set_id(&ledger_with()).await, second_id);
    ledger_with().ping().await.expect("the trusted server is used");
    trusted.allow_any_data_set();
    assert_eq!(data_set_id(&ledger_with()).await, second_id, "it is still preferred");
}

async fn data_set_id(ledger: &Ledger) -> String {
    ledger.identity().await.expect("Redis answers").data_set_id
}

#[tokio::test(flavor = "multi_thread")]
async fn handle_does_not_use_another_data_set_than_the_trusted_one() {
    let fixture = LedgerFixture::open().await;
    let (ledger, trusted) = ledger_of(&fixture, None);
    let (key, key_record) = new_key(10);
    fill(&ledger, &key, &key_record).await;
    trusted.set_data_set("another_");
    let refused = ledger
        .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
        .await
        .expect_err("another data set is trusted");
    assert!(matches!(refused.error, LedgerError::Unreachable), "{refused:?}");
    assert!(ledger.ping().await.is_err());

    // The first replica changes the identity of its primary on open connections.
    let replica = Redis::start(RedisOptions::default()).await.expect("Redis starts");
    let before = ledger.identity().await.expect("Redis answers").data_set_id;
    replica.replicate_from(&fixture.redis).await.expect("replica is in sync");
    let after = ledger_of(&fixture, None).0.identity().await.expect("Redis answers").data_set_id;
    assert_ne!(before, after);
    trusted.set_data_set(&after);
    fill(&ledger, &key, &key_record).await;
    assert_eq!(admitted_count(&charge(&ledger, &key).await), 1);
}
