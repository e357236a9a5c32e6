//! Charges that Redis receives long after they were sent.

use std::time::Instant;

use ipseity_ledger::RECONCILE_DELAY;
use ipseity_testkit::{FaultConfig, eventually};
use tokio::time::sleep;

use crate::fixture::{ApiFixture, PATIENCE};

#[tokio::test]
async fn charge_that_a_frozen_redis_reads_late_has_no_effect() {
    let mut fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    fixture.redis.freeze();
    assert_eq!(fixture.node.request_degraded(&key).await, 200);
    sleep(RECONCILE_DELAY).await;
    fixture.redis.thaw();
    assert_eq!(fixture.charged(&key).await, 1, "the charge has expired");
    fixture.node.reconcile_all().await;
    assert_eq!(fixture.charged(&key).await, 2);
    assert_eq!(fixture.node.metric("unverifiable_charges_total"), 0);
}

/// Like a tunnel or a sidecar that acknowledges requests and delivers them when it can.
#[tokio::test]
async fn charge_that_arrives_after_it_was_reconciled_has_no_effect() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    let held = FaultConfig { hold_requests_before: Some(Instant::now()), ..FaultConfig::none() };
    fixture.redis_link.set_faults(held);
    let admitted = 1 + fixture.node.request_until_degraded(&key).await;
    assert_eq!(fixture.charged(&key).await, 1, "all charges are held");
    fixture.node.recover().await;
    fixture.node.reconcile_all().await;
    assert_eq!(fixture.charged(&key).await, admitted);
    let calls_before = charge_calls(&fixture).await;
    fixture.redis_link.clear_faults();
    eventually("the held charges arrive", PATIENCE, async || charge_calls(&fixture).await > calls_before)
        .await
        .expect("requests are delivered");
    assert_eq!(fixture.charged(&key).await, admitted);
    assert_eq!(fixture.node.metric("unverifiable_charges_total"), 0);
}

async fn charge_calls(fixture: &ApiFixture) -> u64 {
    fixture.redis.command_calls().await.expect("Redis answers").get("evalsha").copied().unwrap_or_default()
}
