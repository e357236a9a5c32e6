//! Every change reaches Redis, also after PostgreSQL or Redis has lost data.

use ipseity_domain::{KeyChange, KeyState, PlaintextKey};
use ipseity_ledger::Verdict;
use ipseity_store::{Actor, StoreError, StoreRefusal};

use crate::fixture::{KeysFixture, assert_in_effect, is_admitted};

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_in_effect_on_the_next_charge() {
    let fixture = KeysFixture::open().await;
    let (node, other) = (fixture.node(), fixture.node());
    node.service.check_deployment().await.expect("check succeeds");
    let key = fixture.create_key().await;
    let service = &node.service;
    assert!(is_admitted(&other.charge(&key).await));
    assert_in_effect(service.deactivate(Actor::Operator, key.id).await.expect("key is deactivated"));
    assert!(matches!(other.charge(&key).await, Verdict::Inactive(_)));
    assert_in_effect(service.reactivate(fixture.owner(), key.id).await.expect("key is reactivated"));
    assert!(is_admitted(&other.charge(&key).await));
    let rotated = PlaintextKey::rotate(key.id, || fastrand::u8(..)).to_api_key();
    assert_in_effect(service.rotate(fixture.owner(), &rotated, 60).await.expect("key is rotated"));
    assert!(is_admitted(&other.charge(&key).await) && is_admitted(&other.charge(&rotated).await));
    assert_in_effect(service.revoke_previous(fixture.owner(), key.id).await.expect("previous secret is revoked"));
    assert!(matches!(other.charge(&key).await, Verdict::WrongSecret(_)));
    assert_in_effect(service.delete(fixture.owner(), key.id).await.expect("key is deleted"));
    let verdict = other.charge_once(&rotated).await;
    assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
    assert_eq!(fixture.outbox_count().await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn change_that_meets_a_newer_record_is_repaired_and_counted() {
    let fixture = KeysFixture::open().await;
    let node = fixture.node();
    let [behind, equal] = [fixture.create_key().await, fixture.create_key().await];
    for key in [&behind, &equal] {
        let rotated = PlaintextKey::rotate(key.id, || fastrand::u8(..)).to_api_key();
        assert!(is_admitted(&node.charge(key).await));
        assert_in_effect(node.service.rotate(Actor::Operator, &rotated, 3600).await.expect("key is rotated"));
    }
    assert_in_effect(node.service.deactivate(Actor::Operator, behind.id).await.expect("key is deactivated"));
    assert_in_effect(node.service.reactivate(Actor::Operator, behind.id).await.expect("key is reactivated"));

    // PostgreSQL loses these commits. Nodes do not notice, because no other server was promoted.
    fixture
        .sql(
            "update keys set generation = 1, digest = retired_digest, retired_digest = null, retired_until = null;
             delete from outbox",
        )
        .await;
    for (key, conflicts) in [(&behind, 1), (&equal, 2)] {
        assert_in_effect(node.service.deactivate(Actor::Operator, key.id).await.expect("key is deactivated"));
        assert!(matches!(node.charge(key).await, Verdict::Inactive(_)));
        let metrics = node.metrics();
        assert!(metrics.contains(&format!("key_record_conflicts_total {conflicts}")), "{metrics}");
    }
    assert_eq!(fixture.outbox_count().await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn overtaken_change_is_no_conflict() {
    let fixture = KeysFixture::open().await;
    let node = fixture.node();
    let key = fixture.create_key().await;
    assert!(is_admitted(&node.charge(&key).await));
    let first = fixture.store.keys().deactivate(Actor::Operator, key.id).await.expect("key is deactivated");
    assert_in_effect(node.service.reactivate(Actor::Operator, key.id).await.expect("key is reactivated"));
    assert_in_effect(node.service.publish(first).await);
    assert!(is_admitted(&node.charge(&key).await), "the newer change is in effect");
    assert!(node.metrics().contains("key_record_conflicts_total 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn resume_clears_a_pause_wherever_it_is_stored() {
    let fixture = KeysFixture::open().await;
    let node = fixture.node();

    // Redis has the pause and its pending entry.
    let key = fixture.create_key().await;
    node.charge_until_paused(&key).await;
    assert_in_effect(node.service.resume(Actor::Operator, key.id).await.expect("key is resumed"));
    assert!(is_admitted(&node.charge(&key).await));
    assert_eq!(fixture.sql("select count(*) from pauses").await, "1", "the pause is in the history");

    // PostgreSQL has lost the pause.
    node.charge_until_paused(&key).await;
    let pauses = node.ledger.unrecorded_pauses_of(key.id).await.expect("Redis answers");
    node.service.record_pauses(&pauses).await.expect("pause is recorded");
    fixture.sql("update keys set paused_at = null, generation = generation - 1; delete from outbox").await;
    assert!(matches!(node.charge(&key).await, Verdict::Paused { .. }));
    let resumed = node.service.resume(Actor::Operator, key.id).await.expect("key is resumed");
    assert!(matches!(&resumed.change, KeyChange::Updated(record) if record.flags.state() == KeyState::Active));
    assert_in_effect(resumed);
    assert!(is_admitted(&node.charge(&key).await));

    // Only PostgreSQL has the pause.
    node.charge_until_paused(&key).await;
    let pauses = node.ledger.unrecorded_pauses_of(key.id).await.expect("Redis answers");
    node.service.record_pauses(&pauses).await.expect("pause is recorded");
    fixture.redis.flushall().await.expect("Redis is emptied");
    assert!(matches!(node.charge(&key).await, Verdict::Paused { .. }));
    assert_in_effect(node.service.resume(Actor::Operator, key.id).await.expect("key is resumed"));
    assert!(is_admitted(&node.charge(&key).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_resumes_once_a_minute_and_operator_without_limit() {
    let fixture = KeysFixture::open().await;
    let node = fixture.node();
    let key = fixture.create_key().await;
    node.charge_until_paused(&key).await;
    assert_in_effect(node.service.resume(fixture.owner(), key.id).await.expect("key is resumed"));
    assert_in_effect(node.service.resume(fixture.owner(), key.id).await.expect("a second click has no effect"));
    assert!(is_admitted(&node.charge(&key).await));

    node.charge_until_paused(&key).await;
    match node.service.resume(fixture.owner(), key.id).await.map(|committed| committed.change) {
        Err(StoreError::Refused(StoreRefusal::ResumedRecently { retry_after_s })) => {
            assert!((1..=60).contains(&retry_after_s), "{retry_after_s}");
        }
        outcome => panic!("expected a refusal, got {outcome:?}"),
    }
    assert!(matches!(node.charge(&key).await, Verdict::Paused { .. }));
    assert_in_effect(node.service.resume(Actor::Operator, key.id).await.expect("key is resumed"));
    node.charge_until_paused(&key).await;
    fixture.sql("update history set at = at - interval '61 seconds'").await;
    assert_in_effect(node.service.resume(fixture.owner(), key.id).await.expect("key is resumed"));
    assert!(is_admitted(&node.charge(&key).await));
}
