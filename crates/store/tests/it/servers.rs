//! Several PostgreSQL servers in one URL.

use std::time::{Duration, Instant};

use ipseity_domain::causes;
use ipseity_store::{AccountEvent, PostgresRole, Store, StoreError, StoreOptions};
use ipseity_testkit::{Postgres, eventually};

use crate::fixture::{DATABASE, StoreFixture, TEST_TIMEOUT, random_digest};

const RECOVERY_TIMEOUT: Duration = Duration::from_secs(20);
/// About a second on an idle machine.
const FOLLOW_TIME_MAX: Duration = Duration::from_secs(10);

/// A store with both servers, the second one of these first.
fn open_store(second: &Postgres, first: &Postgres, timeout: Duration) -> Store {
    let [first, second] = [first, second].map(|server| server.address().to_string());
    let url = format!("postgres://postgres@{first},{second}/{DATABASE}?target_session_attrs=read-write");
    Store::new(&StoreOptions {
        url,
        application_name: "test",
        operator: None,
        token: None,
        connections_max: 4,
        timeout,
    })
    .expect("options are valid")
}

async fn start_replica(fixture: &StoreFixture) -> Postgres {
    fixture.postgres.start_replica(fixture.postgres.address()).await.expect("replica starts")
}

async fn is_writable(store: &Store) -> bool {
    store.sites().add(&format!("s{}", fastrand::u32(..)), &random_digest()).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_in_front_is_skipped_and_a_promoted_one_takes_over() {
    let mut fixture = StoreFixture::open().await;
    let replica = start_replica(&fixture).await;
    let store = open_store(&fixture.postgres, &replica, TEST_TIMEOUT);
    assert!(is_writable(&store).await);
    let info = store.inspect_server().await.expect("a server answers");
    assert_eq!(info.address, fixture.postgres.address().to_string());
    assert!(!info.is_read_only && info.others.len() == 1 && info.others[0].role == PostgresRole::Standby, "{info:?}");
    let mut listener = store.accounts().listen().await.expect("listener connects");

    fixture.postgres.kill9();
    replica.promote().await.expect("replica is promoted");
    let promoted_at = Instant::now();
    assert!(is_writable(&store).await, "the call that meets the failover waits for the promoted server");
    assert!(promoted_at.elapsed() < FOLLOW_TIME_MAX, "{:?}", promoted_at.elapsed());
    assert_eq!(listener.wait().await.expect("listener reconnects"), AccountEvent::Resync);

    // The old primary returns, as a primary: it has the older timeline.
    fixture.postgres.restart().await.expect("PostgreSQL restarts");
    let other = open_store(&replica, &fixture.postgres, TEST_TIMEOUT);
    let info = other.inspect_server().await.expect("a server answers");
    assert_eq!(info.address, replica.address().to_string());
    assert!(matches!(info.others[0].role, PostgresRole::Primary { timeline: 1 }), "{info:?}");
    assert!(is_writable(&other).await && is_writable(&store).await);
    let sites = "select count(*) from sites";
    assert_eq!(fixture.sql(sites).await, "1", "nothing is written to the old primary");
    assert_eq!(replica.psql(DATABASE, sites).await.expect("query succeeds"), "4");
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_primary_is_given_up_with_its_open_connections() {
    let mut fixture = StoreFixture::open().await;
    let replica = start_replica(&fixture).await;
    let timeout = Duration::from_secs(1);
    let store = open_store(&replica, &fixture.postgres, timeout);
    let write = || is_writable(&store);
    assert_eq!(tokio::join!(write(), write(), write(), write()), (true, true, true, true));
    let mut listener = store.accounts().listen().await.expect("listener connects");

    fixture.postgres.freeze();
    replica.promote().await.expect("replica is promoted");
    let promoted_at = Instant::now();
    eventually("the store follows", RECOVERY_TIMEOUT, async || is_writable(&store).await)
        .await
        .expect("store recovers");
    assert!(promoted_at.elapsed() < FOLLOW_TIME_MAX, "{:?}", promoted_at.elapsed());
    for _ in 0..8 {
        assert!(is_writable(&store).await, "no call waits for a connection to the frozen server");
    }
    // A new process has only one attempt.
    let other = open_store(&replica, &fixture.postgres, timeout);
    assert!(is_writable(&other).await, "the frozen server is skipped in time");
    fixture.postgres.thaw();
    let mut wait =
        async || tokio::time::timeout(FOLLOW_TIME_MAX, listener.wait()).await.expect("an event").expect("no failure");
    assert_eq!(wait().await, AccountEvent::Resync, "the old primary keeps the connection open");
    replica.psql(DATABASE, "select pg_notify('ipseity_account', '7')").await.expect("notified");
    assert_eq!(wait().await, AccountEvent::Changed(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn error_names_each_server_and_its_cause() {
    let mut fixture = StoreFixture::open().await;
    let replica = start_replica(&fixture).await;
    let (primary, standby) = (fixture.postgres.address(), replica.address());
    let expected = [format!("{primary} is unreachable ("), format!("{standby} is a standby or read-only")];
    let assert_explained = |error: &StoreError| {
        let text = causes(error).to_string();
        assert!(matches!(error, StoreError::Outage(_)) && expected.iter().all(|cause| text.contains(cause)), "{text}");
    };
    let timeout = Duration::from_secs(1);
    let (used, unused) =
        (open_store(&replica, &fixture.postgres, timeout), open_store(&replica, &fixture.postgres, timeout));
    used.check().await.expect("query succeeds");
    fixture.postgres.kill9();
    assert_explained(&unused.check().await.expect_err("there is no primary"));
    assert_explained(&unused.migrate().await.expect_err("there is no primary"));
    assert_explained(&used.check().await.expect_err("there is no primary"));
    fixture.postgres.restart().await.expect("PostgreSQL restarts");
    for store in [&used, &unused] {
        eventually("the store recovers", RECOVERY_TIMEOUT, async || is_writable(store).await).await.expect("recovers");
    }
}
