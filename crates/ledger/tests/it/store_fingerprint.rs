//! Records of another PostgreSQL database are not trusted, for example after a failover or a restored backup.

use std::sync::Arc;

use ipseity_domain::{ApiKey, KeyFlags, KeyRecord};
use ipseity_ledger::{ChargeId, Ledger, LedgerOptions, Published, StoreFingerprint, Verdict};

use crate::fixture::{LedgerFixture, REQUEST_TIMEOUT, admitted_count, new_key};

/// A node and the database that it uses.
fn ledger_of(fixture: &LedgerFixture, fingerprint: Option<[u8; 8]>) -> (Ledger, Arc<StoreFingerprint>) {
    let store = Arc::new(StoreFingerprint::default());
    store.set(fingerprint);
    let options =
        LedgerOptions { store: Arc::clone(&store), ..LedgerOptions::new(fixture.redis.url(), REQUEST_TIMEOUT) };
    (Ledger::new(&options).expect("valid URL"), store)
}

async fn charge(ledger: &Ledger, key: &ApiKey) -> Verdict {
    ledger.charge(key, ChargeId::next()).await.expect("charge succeeds")
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
    store.set(Some(*b"promoted"));
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
    store.set(Some(*b"promoted"));
    let inactive = KeyRecord { flags: KeyFlags { deactivated: true, paused: false }, generation: 2, ..key_record };
    assert_eq!(ledger.publish(&inactive).await.expect("publish succeeds"), Published::Applied);
    store.set(Some(*b"database"));
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
    store.set(Some(*b"database"));
    assert_eq!(admitted_count(&charge(&unaware, &key).await), 2);
    store.set(Some(*b"promoted"));
    assert!(matches!(charge(&unaware, &key).await, Verdict::Unknown(_)));
    // A record that was filled by a node without a database.
    let (other_key, other_record) = new_key(10);
    store.set(None);
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
    store.set(Some(*b"promoted"));
    assert!(!ledger.fill(&key_record, &fence).await.expect("Redis answers"));
}
