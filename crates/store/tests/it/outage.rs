//! PostgreSQL away, frozen and back.

use std::time::{Duration, Instant};

use domain::{Day, Used};
use store::{By, Store, StoreError, StoreOptions};
use testkit::eventually;

use crate::stage::{Stage, email, mint, node, pause};

const TIMEOUT: Duration = Duration::from_millis(500);
/// Waiting for a connection, then for a statement, and what a busy machine may take besides.
const ANSWER_MAX: Duration = Duration::from_secs(3);

async fn assert_outage<T: std::fmt::Debug>(what: &str, call: impl Future<Output = Result<T, StoreError>>) {
    let start = Instant::now();
    let outcome = call.await;
    assert!(matches!(outcome, Err(StoreError::Outage(_))), "{what}: {outcome:?}");
    assert!(start.elapsed() < ANSWER_MAX, "{what}: {:?}", start.elapsed());
}

async fn assert_away(store: &Store) {
    let key = mint();
    assert_outage("check", store.check()).await;
    assert_outage("find_standing", store.find_standing(key.id)).await;
    assert_outage("record_pause", store.record_pause(&pause(key.id, 1))).await;
    assert_outage("find_demo_used", store.find_demo_used()).await;
    assert_outage("deactivate", store.deactivate(By::Operator, key.id)).await;
    assert_outage("find_member", store.find_member(&[0; 32], TIMEOUT)).await;
    assert_outage("request_reset", store.request_reset(&email("ada@house.example"))).await;
    assert_outage("set_password", store.set_password(1, "hash", None)).await;
    assert_outage("delete_account", store.delete_account(1)).await;
    assert_outage("roll_up_demo", store.roll_up_demo(Used { day: Day(1), count: 1 }, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_or_frozen_server_is_an_outage_in_time_and_heals() {
    let mut stage = Stage::open().await;
    let store = node(&stage.postgres, TIMEOUT);
    let heals = async |store: &Store| {
        eventually("the store heals", Duration::from_secs(20), async || store.check().await.is_ok()).await
    };
    store.check().await.expect("an answer");
    stage.postgres.kill9();
    assert_away(&store).await;
    assert_outage("migrate", store.migrate()).await;
    assert_outage("listen", async { store.listen().await.map(drop) }).await;
    assert_outage("listen_accounts", async { store.listen_accounts().await.map(drop) }).await;
    stage.postgres.restart().await.expect("a server that comes back");
    heals(&store).await.expect("an answer");

    // Each of them on a connection that was good, and given back, a moment ago.
    let key = mint();
    let idle = "select count(*) > 0 from pg_stat_activity where application_name = 'test' and state = 'idle'";
    assert_eq!(stage.sql(idle).await, "t");
    stage.postgres.freeze();
    assert_outage("find_standing", store.find_standing(key.id)).await;
    stage.postgres.thaw();
    heals(&store).await.expect("an answer");
    assert_eq!(stage.sql(idle).await, "t");
    stage.postgres.freeze();
    assert_outage("record_pause", store.record_pause(&pause(key.id, 1))).await;
    assert_away(&store).await;
    stage.postgres.thaw();
    heals(&store).await.expect("an answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_can_be_made_while_its_server_is_away() {
    let mut stage = Stage::open().await;
    stage.postgres.stop().await.expect("an end");
    let store = node(&stage.postgres, TIMEOUT);
    assert_outage("check", store.check()).await;
    stage.postgres.restart().await.expect("a server");
    store.check().await.expect("an answer");

    let url = "nonsense".to_owned();
    let options = StoreOptions { url, application_name: "test", connections_max: 1, timeout: TIMEOUT };
    assert!(Store::new(&options).is_err());
}
