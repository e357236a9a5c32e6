//! Sessions and known devices.

use std::time::Duration;

use ipseity_store::SessionLimits;

use crate::fixture::{StoreFixture, email, random_digest, session_limits};

const HOUR: Duration = Duration::from_secs(3_600);
const LIMITS: SessionLimits = session_limits(Duration::from_secs(14 * 86_400));

#[tokio::test(flavor = "multi_thread")]
async fn session_authenticates_until_idle_timeout() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let (own_digest, other_digest) = (random_digest(), random_digest());
    let session = fixture.open_session_for(&account, own_digest).await;
    fixture.open_session_for(&fixture.create_account().await, other_digest).await;
    let authenticate = async |limits| store.sessions().authenticate(&own_digest, limits).await.expect("query succeeds");
    let set_last_seen = async |minutes: u32| {
        fixture.sql(&format!("update sessions set seen_at = now() - interval '{minutes} minutes'")).await;
    };
    let seen_recently =
        async || fixture.sql("select seen_at > now() - interval '1 minute' from sessions order by id").await;

    let authenticated = authenticate(LIMITS).await.expect("session is valid");
    assert_eq!(
        (authenticated.session_id, authenticated.account.id, &authenticated.account.email),
        (session, account.id, &account.email)
    );
    assert_eq!(authenticated.account.daily_limit, 10_000);
    assert!(store.sessions().authenticate(&random_digest(), LIMITS).await.expect("query succeeds").is_none());

    set_last_seen(59).await;
    assert!(authenticate(LIMITS).await.is_some());
    assert_eq!(seen_recently().await, "f\nf", "not updated for every request");
    set_last_seen(61).await;
    assert!(authenticate(LIMITS).await.is_some());
    assert_eq!(seen_recently().await, "t\nf", "only this session is updated");

    set_last_seen(121).await;
    assert!(authenticate(session_limits(2 * HOUR)).await.is_none());
    assert_eq!(store.sessions().list(account.id, session_limits(2 * HOUR)).await.expect("sessions are listed"), []);
    assert_eq!(seen_recently().await, "f\nf");
    set_last_seen(31).await;
    assert!(authenticate(session_limits(HOUR)).await.is_some());
    assert_eq!(seen_recently().await, "t\nf", "a short idle timeout is updated more often");
}

#[tokio::test(flavor = "multi_thread")]
async fn account_lists_and_ends_only_its_sessions() {
    let fixture = StoreFixture::open().await;
    let (store, account, other) = (&fixture.store, fixture.create_account().await, fixture.create_account().await);
    let digests = [random_digest(), random_digest(), random_digest()];
    let first = fixture.open_session_for(&account, digests[0]).await;
    let second = fixture.open_session_with_label(&account, digests[1], &"é".repeat(61)).await;
    let third = fixture.open_session_for(&account, digests[2]).await;
    let other_session = fixture.open_session_for(&other, random_digest()).await;

    let rows = store.sessions().list(account.id, LIMITS).await.expect("sessions are listed");
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [third, second, first]);
    assert_eq!((rows[0].label.as_str(), rows[1].label.as_str()), ("Firefox on Linux", "é".repeat(60).as_str()));

    assert!(!store.sessions().end(account.id, other_session).await.expect("session is ended"));
    assert!(store.sessions().end(account.id, first).await.expect("session is ended"));
    assert!(!store.sessions().end(account.id, first).await.expect("session is ended"), "already ended");
    assert!(store.sessions().authenticate(&digests[0], LIMITS).await.expect("query succeeds").is_none());
    assert_eq!(store.sessions().end_others(account.id, third).await.expect("sessions are ended"), 1);
    store.sessions().end_by_digest(&random_digest()).await.expect("session is ended");
    assert_eq!(fixture.sql("select id from sessions order by id").await, format!("{third}\n{other_session}"));
    store.sessions().end_by_digest(&digests[2]).await.expect("session is ended");
    assert_eq!(fixture.sql("select id from sessions").await, other_session.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn account_keeps_at_most_100_sessions() {
    let fixture = StoreFixture::open().await;
    let (store, account, other) = (&fixture.store, fixture.create_account().await, fixture.create_account().await);
    let oldest = fixture.open_session_for(&account, random_digest()).await;
    fixture.open_session_for(&other, random_digest()).await;
    fixture.sql("update sessions set seen_at = now() - interval '1 day'").await;
    for _ in 0..100 {
        fixture.open_session_for(&account, random_digest()).await;
    }
    let rows = store.sessions().list(account.id, LIMITS).await.expect("sessions are listed");
    assert_eq!(rows.len(), 100);
    assert!(rows.iter().all(|row| row.id != oldest), "the least recently used session is removed");
    assert_eq!(store.sessions().list(other.id, LIMITS).await.expect("sessions are listed").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn account_remembers_its_newest_20_devices() {
    let fixture = StoreFixture::open().await;
    let (store, account, other) = (&fixture.store, fixture.create_account().await, fixture.create_account().await);
    let (first, second) = (random_digest(), random_digest());
    let is_known =
        async |address: &str, digest| store.devices().is_known(&email(address), digest).await.expect("query succeeds");
    store.devices().remember(account.id, &first, "Firefox").await.expect("device is recorded");
    store.devices().remember(account.id, &second, "Firefox").await.expect("device is recorded");
    assert!(is_known(&account.email.to_uppercase(), &first).await);
    assert!(!is_known(&other.email, &first).await);
    assert!(!is_known("unknown@ipseity.example", &first).await);
    store.devices().remember(other.id, &first, "Firefox").await.expect("device is recorded");
    assert!(
        is_known(&other.email, &first).await && is_known(&account.email, &first).await,
        "one device is known to two accounts"
    );

    fixture.sql("update devices set created_at = now() - interval '1 hour'").await;
    store.devices().remember(account.id, &first, "Firefox").await.expect("device is recorded again");
    for _ in 0..19 {
        store.devices().remember(account.id, &random_digest(), "Firefox").await.expect("device is recorded");
    }
    assert!(is_known(&account.email, &first).await);
    assert!(!is_known(&account.email, &second).await, "the oldest device is removed");
    let counts = format!("select count(*) from devices where account_id = {}", account.id);
    assert_eq!(fixture.sql(&counts).await, "20");
    assert!(is_known(&other.email, &first).await);
}
