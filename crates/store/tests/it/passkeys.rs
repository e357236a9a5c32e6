//! Passkeys and WebAuthn states, which are opaque JSON to the store.

use ipseity_store::{FoundPasskey, StoreRefusal};
use tokio::task::JoinSet;

use crate::fixture::{StoreFixture, expect_refusal, random_digest};

/// Arbitrary JSON.
macro_rules! json {
    ($text:literal) => {
        $text.parse::<serde_json::Value>().expect("JSON parses")
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn passkey_finds_its_account_until_deleted() {
    let fixture = StoreFixture::open().await;
    let (store, account, other) = (&fixture.store, fixture.create_account().await, fixture.create_account().await);
    let [session, other_session] = [
        fixture.open_session_for(&account, random_digest()).await,
        fixture.open_session_for(&other, random_digest()).await,
    ];
    let add = async |account_id, session_id, credential_id: &[u8], name: &str, passkey| {
        store.passkeys().add(account_id, session_id, credential_id, name, &passkey).await
    };
    add(account.id, session, b"one", &"é".repeat(61), json!(r#"{"counter": 1}"#)).await.expect("passkey is added");
    add(other.id, other_session, b"two", "laptop", json!("2")).await.expect("passkey is added");
    for (account_id, session_id, credential_id, refusal) in [
        (other.id, other_session, b"one", StoreRefusal::PasskeyExists),
        (0, session, b"six", StoreRefusal::UnknownAccount),
        (account.id, other_session, b"six", StoreRefusal::SessionEnded),
    ] {
        assert_eq!(expect_refusal(add(account_id, session_id, credential_id, "phone", json!("3")).await), refusal);
    }

    store.passkeys().update(b"one", &json!(r#"{"counter": 2}"#)).await.expect("passkey is updated");
    let found = store.passkeys().find(b"one").await.expect("query succeeds");
    let user_handle = store.passkeys().user_handle(account.id).await.expect("account has a handle");
    let passkey = json!(r#"{"counter": 2}"#);
    assert_eq!(found, Some(FoundPasskey { account_id: account.id, user_handle, passkey }));
    let found = store.passkeys().find(b"two").await.expect("query succeeds").expect("passkey exists");
    assert_eq!((found.account_id, found.passkey), (other.id, json!("2")));
    assert_eq!(store.passkeys().find(b"three").await.expect("query succeeds"), None);

    let [row] =
        store.passkeys().list(account.id).await.expect("passkeys are listed").try_into().expect("exactly one passkey");
    assert_eq!((row.name.as_str(), row.passkey), ("é".repeat(60).as_str(), json!(r#"{"counter": 2}"#)));
    assert!(
        !store.passkeys().delete(other.id, other_session, row.id).await.expect("deletion succeeds"),
        "the passkey of another account"
    );
    let by_other_session = store.passkeys().delete(account.id, other_session, row.id).await;
    assert_eq!(expect_refusal(by_other_session), StoreRefusal::SessionEnded);
    assert!(store.passkeys().delete(account.id, session, row.id).await.expect("deletion succeeds"));
    assert_eq!(store.passkeys().find(b"one").await.expect("query succeeds"), None);
    assert_eq!(store.passkeys().list(other.id).await.expect("passkeys are listed").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_adds_stop_at_ten_passkeys_per_account() {
    let fixture = StoreFixture::open().await;
    let account = fixture.create_account().await;
    let session = fixture.open_session_for(&account, random_digest()).await;
    let mut race = JoinSet::new();
    for number in 0..25_u8 {
        let (store, account) = (fixture.store.clone(), account.id);
        race.spawn(async move { store.passkeys().add(account, session, &[number], "phone", &json!("0")).await });
    }
    let (added, others): (Vec<_>, Vec<_>) = race.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(added.len(), 10);
    assert!(others.into_iter().all(|outcome| expect_refusal(outcome) == StoreRefusal::PasskeyLimitReached));
}

#[tokio::test(flavor = "multi_thread")]
async fn account_has_a_stable_unique_webauthn_user_handle() {
    let fixture = StoreFixture::open().await;
    let (store, account, other) = (&fixture.store, fixture.create_account().await, fixture.create_account().await);
    let handle = store.passkeys().user_handle(account.id).await.expect("account has a handle");
    assert_eq!(store.passkeys().user_handle(account.id).await.expect("account has a handle"), handle);
    assert_ne!(store.passkeys().user_handle(other.id).await.expect("account has a handle"), handle);
    assert_eq!(expect_refusal(store.passkeys().user_handle(0).await), StoreRefusal::UnknownAccount);
}

#[tokio::test(flavor = "multi_thread")]
async fn webauthn_state_is_taken_once_before_it_expires() {
    let fixture = StoreFixture::open().await;
    let (store, mine, other) = (&fixture.store, random_digest(), random_digest());
    let take = async |digest| store.webauthn_states().take(digest).await.expect("state is taken");
    store.webauthn_states().save(&mine, &json!("1")).await.expect("state is saved");
    store.webauthn_states().save(&mine, &json!("2")).await.expect("state is saved");
    store.webauthn_states().save(&other, &json!("3")).await.expect("state is saved");
    assert_eq!(take(&mine).await, Some(json!("2")), "the last state is kept");
    assert_eq!(take(&mine).await, None);
    let expiry_query =
        "select expires_at between now() + interval '4 minutes' and now() + interval '5 minutes' from ceremonies";
    assert_eq!(fixture.sql(expiry_query).await, "t");
    fixture.sql("update ceremonies set expires_at = now()").await;
    assert_eq!(take(&other).await, None);
}
