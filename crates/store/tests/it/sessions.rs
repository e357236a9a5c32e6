//! Sessions and known devices.

use std::time::Duration;

use crate::stage::{Stage, digest, email};

const HOUR: Duration = Duration::from_secs(3_600);
const IDLE_MAX: Duration = Duration::from_secs(14 * 86_400);

#[tokio::test(flavor = "multi_thread")]
async fn a_session_knows_its_member_until_it_was_idle_too_long() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    let (mine, strangers) = (digest(), digest());
    let session = stage.session_of(&account, mine).await;
    stage.session_of(&stage.account().await, strangers).await;
    let find = async |idle_max| store.find_member(&mine, idle_max).await.expect("an answer");
    let age = async |minutes: u32| {
        stage.sql(&format!("update sessions set seen_at = now() - interval '{minutes} minutes'")).await;
    };
    let fresh = async || stage.sql("select seen_at > now() - interval '1 minute' from sessions order by id").await;

    let member = find(IDLE_MAX).await.expect("a member");
    assert_eq!((member.session_id, member.account.id, &member.account.email), (session, account.id, &account.email));
    assert_eq!(member.account.daily_limit, 10_000);
    assert!(store.find_member(&digest(), IDLE_MAX).await.expect("an answer").is_none());

    age(59).await;
    assert!(find(IDLE_MAX).await.is_some());
    assert_eq!(fresh().await, "f\nf", "not written for every page");
    age(61).await;
    assert!(find(IDLE_MAX).await.is_some());
    assert_eq!(fresh().await, "t\nf", "moved forward, and no one else's");

    age(121).await;
    assert!(find(2 * HOUR).await.is_none());
    assert_eq!(store.sessions(account.id, 2 * HOUR).await.expect("sessions"), []);
    assert_eq!(fresh().await, "f\nf");
    age(31).await;
    assert!(find(HOUR).await.is_some());
    assert_eq!(fresh().await, "t\nf", "a short idle time is watched more closely");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_lists_and_ends_own_sessions_alone() {
    let stage = Stage::open().await;
    let (store, account, other) = (&stage.store, stage.account().await, stage.account().await);
    let digests = [digest(), digest(), digest()];
    let first = stage.session_of(&account, digests[0]).await;
    let second = store.open_session(account.id, &digests[1], &"é".repeat(61)).await.expect("a session");
    let third = stage.session_of(&account, digests[2]).await;
    let strangers = stage.session_of(&other, digest()).await;

    let rows = store.sessions(account.id, IDLE_MAX).await.expect("sessions");
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [third, second, first]);
    assert_eq!((rows[0].label.as_str(), rows[1].label.as_str()), ("Firefox on Linux", "é".repeat(60).as_str()));

    assert!(!store.end_session(account.id, strangers).await.expect("an answer"));
    assert!(store.end_session(account.id, first).await.expect("an answer"));
    assert!(!store.end_session(account.id, first).await.expect("an answer"), "once");
    assert!(store.find_member(&digests[0], IDLE_MAX).await.expect("an answer").is_none());
    assert_eq!(store.end_other_sessions(account.id, third).await.expect("an answer"), 1);
    store.end_session_of(&digest()).await.expect("an answer");
    assert_eq!(stage.sql("select id from sessions order by id").await, format!("{third}\n{strangers}"));
    store.end_session_of(&digests[2]).await.expect("an answer");
    assert_eq!(stage.sql("select id from sessions").await, strangers.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_a_hundred_sessions_at_most() {
    let stage = Stage::open().await;
    let (store, account, other) = (&stage.store, stage.account().await, stage.account().await);
    let unseen = stage.session_of(&account, digest()).await;
    stage.session_of(&other, digest()).await;
    stage.sql("update sessions set seen_at = now() - interval '1 day'").await;
    for _ in 0..100 {
        stage.session_of(&account, digest()).await;
    }
    let rows = store.sessions(account.id, IDLE_MAX).await.expect("sessions");
    assert_eq!(rows.len(), 100);
    assert!(rows.iter().all(|row| row.id != unseen), "the one unseen for longest made room");
    assert_eq!(store.sessions(other.id, IDLE_MAX).await.expect("sessions").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_is_known_to_the_accounts_it_signed_in_to_the_newest_twenty() {
    let stage = Stage::open().await;
    let (store, account, other) = (&stage.store, stage.account().await, stage.account().await);
    let (first, second) = (digest(), digest());
    let knows = async |address: &str, digest| store.is_known_device(&email(address), digest).await.expect("an answer");
    store.remember_device(account.id, &first).await.expect("a device");
    store.remember_device(account.id, &second).await.expect("a device");
    assert!(knows(&account.email.to_uppercase(), &first).await);
    assert!(!knows(&other.email, &first).await);
    assert!(!knows("nobody@house.example", &first).await);
    store.remember_device(other.id, &first).await.expect("a device");
    assert!(knows(&other.email, &first).await && knows(&account.email, &first).await, "one device, two accounts");

    stage.sql("update devices set created_at = now() - interval '1 hour'").await;
    store.remember_device(account.id, &first).await.expect("a device that is seen again");
    for _ in 0..19 {
        store.remember_device(account.id, &digest()).await.expect("a device");
    }
    assert!(knows(&account.email, &first).await);
    assert!(!knows(&account.email, &second).await, "the oldest went");
    let counts = format!("select count(*) from devices where account_id = {}", account.id);
    assert_eq!(stage.sql(&counts).await, "20");
    assert!(knows(&other.email, &first).await);
}
