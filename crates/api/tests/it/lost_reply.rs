//! Charges and batches without a reply. Each request is counted once, whether Redis applied its charge or not.

use ipseity_domain::PlaintextKey;
use ipseity_ledger::RECONCILE_DELAY;
use ipseity_store::Actor;
use ipseity_testkit::{FaultConfig, eventually};
use tokio::time::sleep;

use crate::fixture::{ApiFixture, CHARGE_TIMEOUT, PATIENCE, id_of};

/// Delivers requests, and drops their replies.
const DROP_REPLIES: FaultConfig = FaultConfig { reply_drop_rate: 1.0, ..FaultConfig::none() };
/// Swallows requests.
const SWALLOW: FaultConfig = FaultConfig { half_open: true, ..FaultConfig::none() };

#[tokio::test]
async fn charge_that_was_applied_without_a_reply_is_counted_once() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    fixture.redis_link.set_faults(DROP_REPLIES);
    assert_eq!(fixture.node.request_degraded(&key).await, 200);
    fixture.redis_link.clear_faults();
    assert_eq!(fixture.charged(&key).await, 2, "Redis has applied the charge");
    fixture.node.reconcile_all().await;
    assert_eq!(fixture.charged(&key).await, 2);
    assert_eq!(fixture.node.metric("unverifiable_charges_total"), 0);
}

#[tokio::test]
async fn charge_that_did_not_arrive_is_counted_once() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    fixture.redis_link.set_faults(SWALLOW);
    assert_eq!(fixture.node.request_degraded(&key).await, 200);
    fixture.redis_link.clear_faults();
    assert_eq!(fixture.charged(&key).await, 1, "Redis has not seen the charge");
    fixture.node.reconcile_all().await;
    assert_eq!(fixture.charged(&key).await, 2);
    assert_eq!(fixture.node.metric("unverifiable_charges_total"), 0);
}

#[tokio::test]
async fn charge_with_a_late_reply_is_counted_once() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    // The charge arrives within its time limit. The reply arrives after the node's timeout.
    fixture.redis_link.set_faults(FaultConfig { delay: CHARGE_TIMEOUT * 3 / 4, ..FaultConfig::none() });
    assert_eq!(fixture.node.request_degraded(&key).await, 200);
    fixture.redis_link.clear_faults();
    assert_eq!(fixture.node.request(&key).await, 200, "the connection is still used");
    fixture.node.reconcile_all().await;
    assert_eq!(fixture.charged(&key).await, 3);
    assert_eq!(fixture.node.metric("unverifiable_charges_total"), 0);
}

#[tokio::test]
async fn batch_that_is_sent_twice_is_counted_once() {
    let fixture = ApiFixture::open().await;
    let (key, other) = (fixture.create_known_key().await, fixture.create_known_key().await);
    // Redis has the script afterwards. Otherwise the lost reply would be the one that asks for it.
    fixture.cut_off_redis(&other).await;
    fixture.redis_link.clear_faults();
    fixture.node.recover().await;
    fixture.node.reconcile_all().await;
    let admitted = 1 + fixture.cut_off_redis(&key).await;
    fixture.redis_link.clear_faults();
    // Degraded mode ends only after the batch, so the link fails between the probe and the batch's reply.
    let admission = fixture.node.api.admission();
    let owner = admission.unavailable_owners().remove(0);
    fixture.node.ledger.probe(&owner).await.expect("Redis answers");
    owner.mark_available();
    fixture.redis_link.set_faults(DROP_REPLIES);
    // Until then, a charge whose connection was cut could still arrive.
    sleep(RECONCILE_DELAY).await;
    assert_ne!(admission.reconcile_pending().await, 0, "the reply to the batch is lost");
    fixture.redis_link.clear_faults();
    assert_eq!(fixture.charged(&key).await, admitted, "Redis has counted the batch");
    eventually("no charge is pending", PATIENCE, async || admission.reconcile_pending().await == 0)
        .await
        .expect("the batch is sent again");
    assert_eq!(fixture.charged(&key).await, admitted);
    assert_eq!(fixture.node.metric("unverifiable_charges_total"), 0);
}

#[tokio::test]
async fn charges_of_a_node_that_stops_without_redis_are_reported() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    let admitted = fixture.cut_off_redis(&key).await;
    fixture.node.api.admission().report_lost_charges();
    assert_eq!(fixture.node.metric("unverifiable_charges_total"), admitted);
}

#[tokio::test]
async fn charge_before_a_resume_is_unverifiable_instead_of_counted_twice() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    fixture.redis_link.set_faults(DROP_REPLIES);
    assert_eq!(fixture.node.request_degraded(&key).await, 200);
    fixture.redis_link.clear_faults();
    let admitted = 2 + burst_until_paused(&fixture, &key).await;
    assert_eq!(fixture.charged(&key).await, admitted);
    fixture.store.keys().resume(Actor::Operator, id_of(&key), true).await.expect("key is resumed");
    fixture.publish_change(id_of(&key)).await;
    fixture.node.reconcile_all().await;
    assert_eq!(fixture.charged(&key).await, admitted);
    assert_eq!(fixture.node.metric("unverifiable_charges_total"), 1);
}

/// Makes requests until the key is paused. Returns the number of those admitted.
async fn burst_until_paused(fixture: &ApiFixture, key: &PlaintextKey) -> u64 {
    let mut admitted = 0;
    loop {
        match fixture.node.request(key).await {
            200 => admitted += 1,
            429 => return admitted,
            other => panic!("status {other} after {admitted} requests"),
        }
    }
}
