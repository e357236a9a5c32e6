//! Keys and their records.

use std::time::{SystemTime, UNIX_EPOCH};

use ipseity_domain::{DailyUsage, KeyChange, KeyFlags, KeyState, PlaintextKey, Restrictions, Scope, UtcDay};
use ipseity_store::{Actor, KeyDailyUsage, StoreError, StoreRefusal};
use tokio::task::JoinSet;

use crate::fixture::{StoreFixture, generate_key, key_name, pause, updated_record};

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creation_stops_at_ten_keys_per_account() {
    let fixture = StoreFixture::open().await;
    let account = fixture.create_account().await;
    let mut race = JoinSet::new();
    for number in 0..40 {
        let (store, account) = (fixture.store.clone(), account.clone());
        race.spawn(async move {
            store
                .keys()
                .create(
                    &account,
                    Actor::Operator,
                    &key_name(&format!("key {number}")),
                    Scope::Ip,
                    &generate_key(),
                    &Restrictions::default(),
                )
                .await
        });
    }
    let outcomes = race.join_all().await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 10);
    let is_refused = |outcome: &&Result<(), StoreError>| {
        matches!(outcome, Err(StoreError::Refused(StoreRefusal::KeyLimitReached { keys_max: 10 })))
    };
    assert_eq!(outcomes.iter().filter(is_refused).count(), 30);

    let insert = |id: &str, slot| {
        format!(
            "insert into keys (id, account_id, seat, name, scope, digest)
             values ('{id}', {}, {slot}, 'x', 'ip', sha256('x'))",
            account.id
        )
    };
    assert!(fixture.sql_error(&insert("aaaaaaaaaa", 1001)).await.contains("keys_seat_check"));
    assert!(fixture.sql_error(&insert("aaaaaaaaaa", 10)).await.contains("keys_account_id_seat_key"));

    let rows = fixture.store.keys().list(account.id).await.expect("keys are listed");
    let deleted_id = rows[3].id;
    assert!(
        matches!(fixture.store.keys().delete(Actor::Operator, deleted_id).await.expect("key is deleted"), KeyChange::Deleted(id) if id == deleted_id)
    );
    fixture.create_key_for(&account).await;
    assert_eq!(fixture.store.keys().list(account.id).await.expect("keys are listed").len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn deactivation_and_pause_are_independent() {
    let fixture = StoreFixture::open().await;
    let (store, key) = (&fixture.store, fixture.create_key().await);
    let flags = |deactivated, paused| KeyFlags { deactivated, paused };

    let unchanged = updated_record(store.keys().resume(Actor::Operator, key.id, false).await.expect("key is resumed"));
    assert_eq!(
        (unchanged.generation, unchanged.burst_epoch),
        (1, 1),
        "resuming a key that is not paused has no effect"
    );
    let unchanged = updated_record(store.keys().reactivate(Actor::Operator, key.id).await.expect("key is reactivated"));
    assert_eq!((unchanged.flags, unchanged.generation), (flags(false, false), 1));

    store.keys().record_pause(&pause(key.id, 1)).await.expect("pause is recorded");
    let inactive = updated_record(store.keys().deactivate(Actor::Operator, key.id).await.expect("key is deactivated"));
    assert_eq!((inactive.flags, inactive.generation, inactive.burst_epoch), (flags(true, true), 3, 1));
    let again = updated_record(store.keys().deactivate(Actor::Operator, key.id).await.expect("key is deactivated"));
    assert_eq!(again.generation, 3, "a repeated change has no effect");
    let reactivated =
        updated_record(store.keys().reactivate(Actor::Operator, key.id).await.expect("key is reactivated"));
    assert_eq!((reactivated.flags.state(), reactivated.burst_epoch), (KeyState::Paused, 1));
    let resumed = updated_record(store.keys().resume(Actor::Operator, key.id, false).await.expect("key is resumed"));
    assert_eq!((resumed.flags.state(), resumed.generation, resumed.burst_epoch), (KeyState::Active, 5, 2));

    store.keys().deactivate(Actor::Operator, key.id).await.expect("key is deactivated");
    store.keys().record_pause(&pause(key.id, 2)).await.expect("pause is recorded");
    let resumed = updated_record(store.keys().resume(Actor::Operator, key.id, false).await.expect("key is resumed"));
    assert_eq!(resumed.flags.state(), KeyState::Inactive, "a resume does not reactivate");
    assert_eq!(fixture.key_record(key.id).await, resumed);

    let unknown = generate_key();
    for outcome in [
        store.keys().deactivate(Actor::Operator, unknown.id).await,
        store.keys().reactivate(Actor::Operator, unknown.id).await,
        store.keys().resume(Actor::Operator, unknown.id, false).await,
        store.keys().rotate(Actor::Operator, &unknown, 60).await,
        store.keys().delete(Actor::Operator, unknown.id).await,
    ] {
        assert!(matches!(outcome, Err(StoreError::Refused(StoreRefusal::UnknownKey))), "{outcome:?}");
    }
    assert!(store.keys().find_record(unknown.id).await.expect("query succeeds").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn rotated_key_keeps_previous_digest_only_for_overlap() {
    let fixture = StoreFixture::open().await;
    let old = fixture.create_key().await;
    let rotate = || PlaintextKey::rotate(old.id, || fastrand::u8(..)).to_api_key();
    let now_s = || SystemTime::now().duration_since(UNIX_EPOCH).expect("clock is after 1970").as_secs();

    let (first, before_s) = (rotate(), now_s());
    let rotated =
        updated_record(fixture.store.keys().rotate(Actor::Operator, &first, 60).await.expect("key is rotated"));
    let previous = rotated.previous.expect("previous digest exists");
    assert_eq!((rotated.digest, previous.digest, rotated.generation), (first.digest, old.digest, 2));
    assert!((before_s + 60..=now_s() + 60).contains(&previous.expires_at_s));

    let second = rotate();
    let rotated =
        updated_record(fixture.store.keys().rotate(Actor::Operator, &second, 60).await.expect("key is rotated"));
    assert_eq!(rotated.previous.map(|previous| previous.digest), Some(first.digest), "only the last secret is kept");

    let without_overlap = rotate();
    let rotated = updated_record(
        fixture.store.keys().rotate(Actor::Operator, &without_overlap, 0).await.expect("key is rotated"),
    );
    assert_eq!(
        (rotated.digest, rotated.previous),
        (without_overlap.digest, None),
        "without an overlap, there is no previous digest"
    );
    assert_eq!(fixture.key_record(old.id).await, rotated);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_record_and_summary_report_newest_usage() {
    let fixture = StoreFixture::open().await;
    let account = fixture.create_account().await;
    let key = fixture.create_key_for(&account).await;
    assert_eq!(fixture.key_record(key.id).await.usage, None);
    let days = [(20_400, 7), (20_402, 3), (20_401, 9)];
    let counts = days.map(|(day, count)| KeyDailyUsage { key: key.id, usage: DailyUsage { day: UtcDay(day), count } });
    fixture.store.usage().merge_counts(&counts).await.expect("usage is merged");
    assert_eq!(fixture.key_record(key.id).await.usage, Some(DailyUsage { day: UtcDay(20_402), count: 3 }));

    fixture.store.keys().deactivate(Actor::Operator, key.id).await.expect("key is deactivated");
    let [row] =
        fixture.store.keys().list(account.id).await.expect("keys are listed").try_into().expect("exactly one key");
    assert_eq!((row.id, row.name.as_str(), row.scope), (key.id, "a key", Scope::Geo));
    assert_eq!((row.state, row.last_used), (KeyState::Inactive, Some(("2025-11-10".to_owned(), 3))));
}
