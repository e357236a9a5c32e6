//! Notifications for live pages and for the mailer.

use std::time::{Duration, Instant};

use ipseity_domain::{DailyUsage, UtcDay};
use ipseity_store::{AccountEvent, AccountEvents, Actor, KeyDailyUsage, KeyEvent, WakeListener};
use ipseity_testkit::eventually;
use tokio::time::timeout;

use crate::fixture::{
    EMAILS_PER_HOUR_MAX, StoreFixture, TEST_TIMEOUT, email, key_name, open_store, pause, random_digest,
};

/// How long to wait for an event that must not happen.
const QUIET_PERIOD: Duration = Duration::from_millis(100);

async fn event(events: &mut AccountEvents) -> AccountEvent {
    timeout(TEST_TIMEOUT, events.wait()).await.expect("notification arrives in time").expect("notification arrives")
}

async fn assert_no_event(events: &mut AccountEvents) {
    assert!(timeout(QUIET_PERIOD, events.wait()).await.is_err(), "woken without a reason");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_changes_and_ended_sessions_notify_their_account() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let (actor, expected) = (Actor::Owner(account.id), AccountEvent::Changed(account.id));
    let mut events = store.accounts().listen().await.expect("listener connects");
    let key = fixture.create_key_for(&account).await.id;
    assert_eq!(event(&mut events).await, expected, "issued");
    store.keys().rename(actor, key, &key_name("another")).await.expect("key is renamed");
    assert_eq!(event(&mut events).await, expected, "renamed");
    store.keys().record_pause(&pause(key, 1)).await.expect("pause is recorded");
    assert_eq!(event(&mut events).await, expected, "paused");
    store.keys().resume(actor, key, false).await.expect("key is resumed");
    assert_eq!(event(&mut events).await, expected, "resumed");

    let session = fixture.open_session_for(&account, random_digest()).await;
    store
        .usage()
        .merge_counts(&[KeyDailyUsage { key, usage: DailyUsage { day: UtcDay(20_400), count: 1 } }])
        .await
        .expect("usage is merged");
    store.keys().resume(actor, key, false).await.expect("repeated change succeeds");
    assert_no_event(&mut events).await;
    store.sessions().end(account.id, session).await.expect("session is ended");
    assert_eq!(event(&mut events).await, expected, "a session ended");
    let other = fixture.create_account().await;
    fixture.create_key_for(&other).await;
    assert_eq!(event(&mut events).await, AccountEvent::Changed(other.id));
    store.accounts().delete(account.id, None).await.expect("account is deleted");
    assert_eq!(event(&mut events).await, expected, "deleted with its account");
    assert_no_event(&mut events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn account_events_report_resync_after_connection_loss() {
    let mut fixture = StoreFixture::open().await;
    let short_timeout = Duration::from_millis(300);
    let mut events = open_store(&fixture.postgres, short_timeout).accounts().listen().await.expect("listener connects");
    fixture.postgres.kill9();
    assert_eq!(event(&mut events).await, AccountEvent::Resync);
    assert!(events.wait().await.is_err(), "PostgreSQL is stopped");
    fixture.postgres.restart().await.expect("PostgreSQL restarts");
    assert_eq!(event(&mut events).await, AccountEvent::Resync, "the connection was replaced");
    let is_available = async || fixture.store.check().await.is_ok();
    eventually("the store recovers", TEST_TIMEOUT, is_available).await.expect("condition holds in time");
    let account = fixture.create_account().await;
    fixture.create_key_for(&account).await;
    assert_eq!(event(&mut events).await, AccountEvent::Changed(account.id));

    fixture.postgres.freeze();
    let outcome = timeout(TEST_TIMEOUT, events.wait()).await.expect("dead connection is noticed in time");
    assert!(outcome.is_err(), "{outcome:?}");
    fixture.postgres.thaw();
    eventually("the listener recovers", TEST_TIMEOUT, async || matches!(events.wait().await, Ok(AccountEvent::Resync)))
        .await
        .expect("listener connects");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_pings_lose_no_account_event() {
    let fixture = StoreFixture::open().await;
    let account = fixture.create_account().await;
    // So short that the connection is tested a few times before the change.
    let short_timeout_store = open_store(&fixture.postgres, Duration::from_millis(50));
    let mut events = short_timeout_store.accounts().listen().await.expect("listener connects");
    let change = async {
        let ping_query = "select count(*) from pg_stat_activity where application_name = 'test' and query = 'select 1'";
        let is_pinged = async || fixture.sql(ping_query).await == "1";
        eventually("the connection is tested", TEST_TIMEOUT, is_pinged).await.expect("connection is tested in time");
        fixture.create_key_for(&account).await;
    };
    let (event, ()) = tokio::join!(event(&mut events), change);
    assert_eq!(event, AccountEvent::Changed(account.id));
}

#[tokio::test(flavor = "multi_thread")]
async fn key_events_name_the_changed_key() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let (first, second) = (fixture.create_key_for(&account).await.id, fixture.create_key_for(&account).await.id);
    let mut events = store.keys().listen().await.expect("listener connects");
    let mut event = async || {
        timeout(TEST_TIMEOUT, events.wait()).await.expect("notification arrives in time").expect("notification arrives")
    };
    store.keys().deactivate(Actor::Operator, second).await.expect("key is deactivated");
    assert_eq!(event().await, KeyEvent::Changed(second));
    store.keys().delete(Actor::Operator, first).await.expect("key is deleted");
    assert_eq!(event().await, KeyEvent::Changed(first));
    for payload in ["", "nonsense"] {
        fixture.sql(&format!("notify ipseity_outbox, '{payload}'")).await;
        assert_eq!(event().await, KeyEvent::Resync, "{payload:?}");
    }
}

/// Whether the mailer is woken before the timeout.
async fn wakes_within(listener: &mut WakeListener, limit: Duration) -> bool {
    let start = Instant::now();
    listener.wait(limit).await.expect("wait succeeds");
    start.elapsed() < limit
}

#[tokio::test(flavor = "multi_thread")]
async fn only_queued_email_wakes_the_mailer() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let (key, address) = (fixture.create_key_for(&account).await.id, email("ada@ipseity.example"));
    let mut listener = store.email_queue().listen().await.expect("listener connects");
    store.email_tokens().create_invite(&address, &random_digest()).await.expect("invitation is created");
    store.keys().deactivate(Actor::Operator, key).await.expect("key is deactivated");
    assert!(!wakes_within(&mut listener, QUIET_PERIOD).await);

    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_signup(&address, "hash", &random_digest())
        .await
        .expect("request is stored");
    assert!(wakes_within(&mut listener, TEST_TIMEOUT).await, "a sign-up");
    store.email_requests(EMAILS_PER_HOUR_MAX).request_password_reset(&address).await.expect("request is stored");
    assert!(wakes_within(&mut listener, TEST_TIMEOUT).await, "a reset");
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_email_change(account.id, &address)
        .await
        .expect("request is stored");
    assert!(wakes_within(&mut listener, TEST_TIMEOUT).await, "another address");
    store.keys().record_pause(&pause(key, 1)).await.expect("pause is recorded");
    assert!(wakes_within(&mut listener, TEST_TIMEOUT).await, "a pause");
    let today = crate::key_summaries::wait_past_midnight().await;
    let count = |count| KeyDailyUsage { key, usage: DailyUsage { day: today, count } };
    store.usage().merge_counts(&[count(8_000)]).await.expect("usage is merged");
    assert!(wakes_within(&mut listener, TEST_TIMEOUT).await, "near the limit");

    store.usage().merge_counts(&[count(8_001)]).await.expect("usage is merged");
    store.keys().resume(Actor::Operator, key, false).await.expect("key is resumed");
    assert!(!wakes_within(&mut listener, QUIET_PERIOD).await, "the alert already exists");
    store.keys().record_pause(&pause(key, 2)).await.expect("second pause is recorded");
    assert!(wakes_within(&mut listener, TEST_TIMEOUT).await, "every pause has an alert");
}
