//! The outbox: no change without its row, no row in two hands.

use std::time::{Duration, Instant};

use domain::{Change, ClearKey};
use store::By;
use testkit::eventually;

use crate::stage::{PATIENCE, Stage, node, pause, standing_of};

#[tokio::test(flavor = "multi_thread")]
async fn every_change_leaves_a_row_and_a_cascade_does_too() {
    let stage = Stage::open().await;
    let account = stage.account().await;
    let (first, second) = (stage.key_of(&account).await, stage.key_of(&account).await);
    assert_eq!(stage.outbox().await, [""; 0], "a new key is in no record yet");

    let store = &stage.store;
    store.deactivate(By::Operator, first.id).await.expect("a change");
    store.deactivate(By::Operator, first.id).await.expect("no change");
    store.reactivate(By::Operator, first.id).await.expect("a change");
    store.record_pause(&pause(first.id, 1)).await.expect("a pause");
    store.resume(By::Operator, first.id).await.expect("a change");
    let rolled = ClearKey::roll(first.id, || fastrand::u8(..)).key();
    store.roll(By::Operator, &rolled, 60).await.expect("a change");
    let mut expected: Vec<String> = (2..=6).map(|generation| format!("{} {generation}", first.id)).collect();
    assert_eq!(stage.outbox().await, expected);

    store.delete(By::Operator, first.id).await.expect("a deletion");
    stage.sql(&format!("delete from accounts where id = {}", account.id)).await;
    expected.extend([format!("{} 7", first.id), format!("{} 2", second.id)]);
    assert_eq!(stage.outbox().await, expected);

    let mut claim = store.claim_outbox(100).await.expect("an answer").expect("a claim");
    let changes = claim.changes().await.expect("changes");
    assert!(changes.iter().all(|change| matches!(change, Change::Gone(_))), "{changes:?}");
    assert_eq!(changes.len(), 2, "one for each key");
    claim.done().await.expect("an end");
    assert_eq!(stage.outbox().await, [""; 0]);
    assert!(store.claim_outbox(100).await.expect("an answer").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_exclusive_and_comes_back_when_it_is_dropped() {
    let stage = Stage::open().await;
    let other = node(&stage.postgres, PATIENCE);
    let (first, second) = (stage.key().await, stage.key().await);
    stage.store.deactivate(By::Operator, first.id).await.expect("a change");
    stage.store.deactivate(By::Operator, second.id).await.expect("a change");

    let mut claim = stage.store.claim_outbox(1).await.expect("an answer").expect("a claim");
    let mut rest = other.claim_outbox(10).await.expect("an answer").expect("a claim");
    assert!(other.claim_outbox(10).await.expect("an answer").is_none());
    let [change] = claim.changes().await.expect("changes").try_into().expect("one change");
    assert_eq!(standing_of(change).id, first.id);

    // Read when it is asked for, not when it was claimed.
    stage.store.reactivate(By::Operator, second.id).await.expect("a change");
    let [change] = rest.changes().await.expect("changes").try_into().expect("one change");
    let change = standing_of(change);
    assert_eq!((change.id, change.generation, change.marks.deactivated), (second.id, 3, false));

    drop(claim);
    rest.done().await.expect("an end");
    eventually("the dropped claim is back", Duration::from_secs(10), async || {
        let found = other.claim_outbox(10).await.expect("an answer");
        match found {
            Some(mut claim) => claim.changes().await.expect("changes").len() == 2,
            None => false,
        }
    })
    .await
    .expect("both rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_applied_removes_rows_up_to_its_own_generation() {
    let stage = Stage::open().await;
    let store = &stage.store;
    let (key, other) = (stage.key().await, stage.key().await);
    store.deactivate(By::Operator, other.id).await.expect("a change");
    store.deactivate(By::Operator, key.id).await.expect("a change");
    let second = store.reactivate(By::Operator, key.id).await.expect("a change");
    store.deactivate(By::Operator, key.id).await.expect("a change");
    store.applied(&second).await.expect("an answer");
    assert_eq!(stage.outbox().await, [format!("{} 2", other.id), format!("{} 4", key.id)]);

    // What a relay holds is the relay's: nobody waits for it.
    let claim = store.claim_outbox(1).await.expect("an answer").expect("a claim");
    let gone = store.delete(By::Operator, other.id).await.expect("a deletion");
    store.applied(&gone).await.expect("an answer");
    claim.done().await.expect("an end");
    assert_eq!(stage.outbox().await, [format!("{} 4", key.id)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_wakes_whoever_listens_also_after_the_server_was_away() {
    let mut stage = Stage::open().await;
    let key = stage.key().await;
    let mut wake = node(&stage.postgres, Duration::from_secs(2)).listen().await.expect("a listener");
    let start = Instant::now();
    wake.wait(Duration::from_millis(50)).await.expect("patience");
    assert!(start.elapsed() >= Duration::from_millis(50), "woken by nothing");

    stage.store.deactivate(By::Operator, key.id).await.expect("a change");
    let start = Instant::now();
    wake.wait(PATIENCE).await.expect("a wake");
    assert!(start.elapsed() < PATIENCE, "not woken");

    stage.postgres.kill9();
    wake.wait(PATIENCE).await.expect("a wake, for what may have been missed");
    assert!(wake.wait(PATIENCE).await.is_err(), "nobody to listen to");
    stage.postgres.restart().await.expect("a server that comes back");
    wake.wait(PATIENCE).await.expect("a wake, for what may have been missed since");
    let heals = async || stage.store.check().await.is_ok();
    eventually("the store heals", PATIENCE, heals).await.expect("an answer");
    stage.store.reactivate(By::Operator, key.id).await.expect("a change");
    let start = Instant::now();
    wake.wait(PATIENCE).await.expect("a wake");
    assert!(start.elapsed() < PATIENCE, "not woken");
}
