//! Pauses and their evidence.

use ipseity_domain::KeyState;
use ipseity_store::Actor;
use tokio::task::JoinSet;

use crate::fixture::{StoreFixture, generate_key, pause};

#[tokio::test(flavor = "multi_thread")]
async fn pause_is_recorded_once_per_burst_epoch() {
    let fixture = StoreFixture::open().await;
    let key = fixture.create_key().await;
    let mut race = JoinSet::new();
    for _ in 0..20 {
        let (store, pause) = (fixture.store.clone(), pause(key.id, 1));
        race.spawn(async move { store.keys().record_pause(&pause).await });
    }
    race.join_all().await.into_iter().collect::<Result<(), _>>().expect("no call fails");
    let record = fixture.key_record(key.id).await;
    assert_eq!((record.flags.state(), record.generation, record.burst_epoch), (KeyState::Paused, 2, 1));
    let pauses_query = "select burst_window, (extract(epoch from paused_at) * 1000)::bigint, counts[60] from pauses";
    assert_eq!(fixture.sql(pauses_query).await, "1|1800000000123|301");
    assert_eq!(fixture.outbox_rows().await, [format!("{} 2", key.id)]);

    fixture.store.keys().resume(Actor::Operator, key.id, false).await.expect("key is resumed");
    fixture.store.keys().record_pause(&pause(key.id, 1)).await.expect("late duplicate is ignored");
    assert_eq!(fixture.key_record(key.id).await.flags.state(), KeyState::Active);
    fixture.store.keys().record_pause(&pause(key.id, 2)).await.expect("pause is recorded");
    assert_eq!(fixture.key_record(key.id).await.flags.state(), KeyState::Paused);
    assert_eq!(fixture.sql("select count(*) from pauses").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_of_deleted_key_changes_nothing() {
    let fixture = StoreFixture::open().await;
    let key = fixture.create_key().await;
    fixture.store.keys().record_pause(&pause(key.id, 1)).await.expect("pause is recorded");
    fixture.store.keys().delete(Actor::Operator, key.id).await.expect("account is deleted");
    fixture.store.keys().record_pause(&pause(key.id, 1)).await.expect("late pause is ignored");
    fixture.store.keys().record_pause(&pause(generate_key().id, 1)).await.expect("pause of an unknown key is ignored");
    assert_eq!(fixture.sql("select count(*) from pauses").await, "0");
}
