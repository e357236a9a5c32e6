//! Revoked keys while Redis is unreachable.

use std::time::Instant;

use ipseity_domain::PlaintextKey;
use ipseity_ledger::{AppliedRestrictions, Arrival, ChargeId, Verdict};
use ipseity_store::Actor;
use ipseity_testkit::{FaultConfig, eventually};
use tokio::time::sleep;

use crate::fixture::{ApiFixture, CHARGE_TIMEOUT, PATIENCE, id_of};

#[tokio::test]
async fn key_that_is_revoked_in_degraded_mode_is_refused() {
    let fixture = ApiFixture::open().await;
    let admission = fixture.node.api.admission();
    admission.set_key_events_subscribed(true);
    let (key, other) = (fixture.create_known_key().await, fixture.create_known_key().await);
    fixture.cut_off_redis(&key).await;
    fixture.store.keys().deactivate(Actor::Operator, id_of(&key)).await.expect("key is deactivated");
    admission.report_change(id_of(&key));
    admission.look_up_changed_key(id_of(&key)).await;
    assert_eq!(fixture.node.request(&key).await, 403);
    assert_eq!(fixture.node.request_degraded(&other).await, 200);

    // Redis is back and does not have the change. PostgreSQL, which has it, is away.
    fixture.postgres_link.set_faults(FaultConfig { cut: true, ..FaultConfig::none() });
    fixture.redis_link.clear_faults();
    admission.publish_refused_keys(&fixture.ledger).await.expect("Redis answers");
    fixture.node.recover().await;
    assert_eq!(fixture.node.request(&key).await, 403);
    assert_eq!(fixture.node.request(&other).await, 200);
}

#[tokio::test]
async fn key_in_doubt_is_not_admitted() {
    let fixture = ApiFixture::open().await;
    let admission = fixture.node.api.admission();
    admission.set_key_events_subscribed(true);
    let (key, other) = (fixture.create_known_key().await, fixture.create_known_key().await);
    fixture.cut_off_redis(&key).await;
    assert_eq!(fixture.node.request(&other).await, 200);
    // PostgreSQL reports a change of the key and then stops answering.
    fixture.postgres_link.set_faults(FaultConfig { cut: true, ..FaultConfig::none() });
    admission.report_change(id_of(&key));
    admission.look_up_changed_key(id_of(&key)).await;
    assert_eq!(fixture.node.request(&key).await, 500);
    assert_eq!(fixture.node.request(&other).await, 200, "only the changed key is in doubt");
    fixture.postgres_link.clear_faults();
    eventually("the key is looked up", PATIENCE, async || fixture.node.request(&key).await == 200)
        .await
        .expect("key is admitted again");
}

#[tokio::test]
async fn key_that_changes_during_a_lookup_is_looked_up_again() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    fixture.cut_off_redis(&key).await;
    // Longer than the timeout of a lookup that the last record could replace.
    fixture.postgres_link.set_faults(FaultConfig { delay: CHARGE_TIMEOUT * 3 / 4, ..FaultConfig::none() });
    let change = async {
        sleep(CHARGE_TIMEOUT / 4).await;
        fixture.node.api.admission().report_change(id_of(&key));
        fixture.node.api.admission().look_up_changed_key(id_of(&key)).await;
    };
    let (status, ()) = tokio::join!(fixture.node.request(&key), change);
    assert_eq!(status, 200);
}

#[tokio::test]
async fn pause_that_redis_reported_is_kept_without_it() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    // Requests on another node, which has not recorded the pause in PostgreSQL yet.
    while !matches!(
        fixture
            .ledger
            .charge(&key.to_api_key(), ChargeId::next(), Arrival::Here(Instant::now()), AppliedRestrictions::default())
            .await
            .expect("Redis answers"),
        Verdict::PausedNow { .. }
    ) {}
    assert_eq!(fixture.node.request(&key).await, 403);
    let both_away = FaultConfig { cut: true, ..FaultConfig::none() };
    fixture.redis_link.set_faults(both_away);
    fixture.postgres_link.set_faults(both_away);
    for _ in 0..5 {
        assert_eq!(fixture.node.request_degraded(&key).await, 403);
    }
}

#[tokio::test]
async fn secret_that_redis_refused_is_not_accepted_without_it() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    // The owner replaces the secret on another node.
    let new_key = PlaintextKey::rotate(id_of(&key), || fastrand::u8(..));
    fixture.store.keys().rotate(Actor::Operator, &new_key.to_api_key(), 0).await.expect("key is rotated");
    fixture.publish_change(id_of(&key)).await;
    assert_eq!(fixture.node.request(&key).await, 401);
    let both_away = FaultConfig { cut: true, ..FaultConfig::none() };
    fixture.redis_link.set_faults(both_away);
    fixture.postgres_link.set_faults(both_away);
    for _ in 0..5 {
        assert_ne!(fixture.node.request(&key).await, 200);
    }
}
