//! PostgreSQL stopped, frozen and restarted.

use std::time::{Duration, Instant};

use ipseity_domain::{DailyUsage, UtcDay};
use ipseity_store::{Actor, Store, StoreError, StoreOptions};
use ipseity_testkit::eventually;

use crate::fixture::{EMAILS_PER_HOUR_MAX, StoreFixture, email, generate_key, open_store, pause, session_limits};

const TIMEOUT: Duration = Duration::from_millis(500);
/// Time for the wait for a connection, a statement, and the delay of a busy machine.
const CALL_DEADLINE: Duration = Duration::from_secs(3);

async fn assert_outage<T: std::fmt::Debug>(method: &str, call: impl Future<Output = Result<T, StoreError>>) {
    let start = Instant::now();
    let outcome = call.await;
    assert!(matches!(outcome, Err(StoreError::Outage(_))), "{method}: {outcome:?}");
    assert!(start.elapsed() < CALL_DEADLINE, "{method}: {:?}", start.elapsed());
}

async fn assert_every_call_fails(store: &Store) {
    let key = generate_key();
    assert_outage("check", store.check()).await;
    assert_outage("find_record", store.keys().find_record(key.id)).await;
    assert_outage("record_pause", store.keys().record_pause(&pause(key.id, 1))).await;
    assert_outage("find_demo_usage", store.usage().find_demo_usage()).await;
    assert_outage("deactivate", store.keys().deactivate(Actor::Operator, key.id)).await;
    assert_outage("authenticate", store.sessions().authenticate(&[0; 32], session_limits(TIMEOUT))).await;
    assert_outage(
        "request_password_reset",
        store.email_requests(EMAILS_PER_HOUR_MAX).request_password_reset(&email("ada@ipseity.example")),
    )
    .await;
    assert_outage("set_password", store.accounts().set_password(1, "hash", 1, &[0; 32], true)).await;
    assert_outage("delete_account", store.accounts().delete(1, None)).await;
    assert_outage("merge_demo_count", store.usage().merge_demo_count(DailyUsage { day: UtcDay(1), count: 1 }, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_or_frozen_postgres_is_an_outage_and_recovers() {
    let mut fixture = StoreFixture::open().await;
    let store = open_store(&fixture.postgres, TIMEOUT);
    let recovers = async |store: &Store| {
        eventually("the store recovers", Duration::from_secs(20), async || store.check().await.is_ok()).await
    };
    store.check().await.expect("query succeeds");
    fixture.postgres.kill9();
    assert_every_call_fails(&store).await;
    assert_outage("migrate", store.migrate()).await;
    assert_outage("listen", async { store.outbox().listen().await.map(drop) }).await;
    assert_outage("listen_accounts", async { store.accounts().listen().await.map(drop) }).await;
    fixture.postgres.restart().await.expect("PostgreSQL restarts");
    recovers(&store).await.expect("store recovers");

    // Each call uses a pooled connection that worked a moment ago.
    let key = generate_key();
    let idle_query = "select count(*) > 0 from pg_stat_activity where application_name = 'test' and state = 'idle'";
    assert_eq!(fixture.sql(idle_query).await, "t");
    fixture.postgres.freeze();
    assert_outage("find_record", store.keys().find_record(key.id)).await;
    fixture.postgres.thaw();
    recovers(&store).await.expect("store recovers");
    assert_eq!(fixture.sql(idle_query).await, "t");
    fixture.postgres.freeze();
    assert_outage("record_pause", store.keys().record_pause(&pause(key.id, 1))).await;
    assert_every_call_fails(&store).await;
    fixture.postgres.thaw();
    recovers(&store).await.expect("store recovers");
}

#[tokio::test(flavor = "multi_thread")]
async fn store_can_be_created_while_postgres_is_down() {
    let mut fixture = StoreFixture::open().await;
    fixture.postgres.stop().await.expect("PostgreSQL stops");
    let store = open_store(&fixture.postgres, TIMEOUT);
    let error = store.check().await.expect_err("PostgreSQL is stopped");
    let causes = ipseity_domain::causes(&error).to_string();
    assert!(causes.contains("Connection refused"), "{causes}");
    assert_outage("check", store.check()).await;
    fixture.postgres.restart().await.expect("PostgreSQL restarts");
    store.check().await.expect("query succeeds");

    let url = "nonsense".to_owned();
    let options = StoreOptions {
        url,
        application_name: "test",
        operator: None,
        token: None,
        connections_max: 1,
        timeout: TIMEOUT,
    };
    assert!(Store::new(&options).is_err());
}
