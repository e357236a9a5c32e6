//! Pauses and their evidence.

use domain::State;
use store::By;
use tokio::task::JoinSet;

use crate::stage::{Stage, mint, pause};

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_is_written_once_for_its_window() {
    let stage = Stage::open().await;
    let key = stage.key().await;
    let mut race = JoinSet::new();
    for _ in 0..20 {
        let (store, pause) = (stage.store.clone(), pause(key.id, 1));
        race.spawn(async move { store.record_pause(&pause).await });
    }
    race.join_all().await.into_iter().collect::<Result<(), _>>().expect("no failure");
    let standing = stage.standing(key.id).await;
    assert_eq!((standing.marks.state(), standing.generation, standing.window), (State::Paused, 2, 1));
    let told = "select burst_window, (extract(epoch from paused_at) * 1000)::bigint, counts[60] from pauses";
    assert_eq!(stage.sql(told).await, "1|1800000000123|301");
    assert_eq!(stage.outbox().await, [format!("{} 2", key.id)]);

    stage.store.resume(By::Operator, key.id).await.expect("a change");
    stage.store.record_pause(&pause(key.id, 1)).await.expect("a late duplicate");
    assert_eq!(stage.standing(key.id).await.marks.state(), State::Active);
    stage.store.record_pause(&pause(key.id, 2)).await.expect("a pause");
    assert_eq!(stage.standing(key.id).await.marks.state(), State::Paused);
    assert_eq!(stage.sql("select count(*) from pauses").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_a_deleted_key_changes_nothing() {
    let stage = Stage::open().await;
    let key = stage.key().await;
    stage.store.record_pause(&pause(key.id, 1)).await.expect("a pause");
    stage.store.delete(By::Operator, key.id).await.expect("a deletion");
    stage.store.record_pause(&pause(key.id, 1)).await.expect("a late pause");
    stage.store.record_pause(&pause(mint().id, 1)).await.expect("a pause of nobody's key");
    assert_eq!(stage.sql("select count(*) from pauses").await, "0");
}
