//! Passkeys and their ceremonies. What is inside them is JSON to the store.

use store::Refused;
use tokio::task::JoinSet;

use crate::stage::{Stage, digest, refused};

/// Any JSON at all.
macro_rules! json {
    ($text:literal) => {
        $text.parse::<serde_json::Value>().expect("JSON")
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passkey_opens_its_own_account_until_its_owner_deletes_it() {
    let stage = Stage::open().await;
    let (store, account, other) = (&stage.store, stage.account().await, stage.account().await);
    store.add_passkey(account.id, b"one", &"é".repeat(61), &json!(r#"{"counter": 1}"#)).await.expect("a passkey");
    store.add_passkey(other.id, b"two", "laptop", &json!("2")).await.expect("a passkey");
    let again = store.add_passkey(other.id, b"one", "phone", &json!("3")).await;
    assert_eq!(refused(again), Refused::PasskeyExists);
    assert_eq!(refused(store.add_passkey(0, b"x", "phone", &json!("3")).await), Refused::UnknownAccount);

    store.update_passkey(b"one", &json!(r#"{"counter": 2}"#)).await.expect("a use");
    let found = store.find_passkey(b"one").await.expect("an answer");
    assert_eq!(found, Some((account.id, json!(r#"{"counter": 2}"#))));
    assert_eq!(store.find_passkey(b"two").await.expect("an answer"), Some((other.id, json!("2"))));
    assert_eq!(store.find_passkey(b"three").await.expect("an answer"), None);

    let [row] = store.passkeys(account.id).await.expect("passkeys").try_into().expect("one passkey");
    assert_eq!((row.name.as_str(), row.passkey), ("é".repeat(60).as_str(), json!(r#"{"counter": 2}"#)));
    assert!(!store.delete_passkey(other.id, row.id).await.expect("an answer"), "a stranger's");
    assert!(store.delete_passkey(account.id, row.id).await.expect("an answer"));
    assert_eq!(store.find_passkey(b"one").await.expect("an answer"), None);
    assert_eq!(store.passkeys(other.id).await.expect("passkeys").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_holds_ten_passkeys_whoever_races() {
    let stage = Stage::open().await;
    let account = stage.account().await;
    let mut race = JoinSet::new();
    for number in 0..25_u8 {
        let (store, account) = (stage.store.clone(), account.id);
        race.spawn(async move { store.add_passkey(account, &[number], "phone", &json!("0")).await });
    }
    let (added, others): (Vec<_>, Vec<_>) = race.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(added.len(), 10);
    assert!(others.into_iter().all(|outcome| refused(outcome) == Refused::PasskeysSpent));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_a_lasting_handle_of_its_own() {
    let stage = Stage::open().await;
    let (store, account, other) = (&stage.store, stage.account().await, stage.account().await);
    let handle = store.account_handle(account.id).await.expect("a handle");
    assert_eq!(store.account_handle(account.id).await.expect("a handle"), handle);
    assert_ne!(store.account_handle(other.id).await.expect("a handle"), handle);
    assert_eq!(refused(store.account_handle(0).await), Refused::UnknownAccount);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ceremony_is_taken_once_and_in_time() {
    let stage = Stage::open().await;
    let (store, mine, other) = (&stage.store, digest(), digest());
    let take = async |digest| store.take_ceremony(digest).await.expect("an answer");
    store.keep_ceremony(&mine, &json!("1")).await.expect("a ceremony");
    store.keep_ceremony(&mine, &json!("2")).await.expect("a ceremony");
    store.keep_ceremony(&other, &json!("3")).await.expect("a ceremony");
    assert_eq!(take(&mine).await, Some(json!("2")), "the last one");
    assert_eq!(take(&mine).await, None);
    let lasts =
        "select expires_at between now() + interval '4 minutes' and now() + interval '5 minutes' from ceremonies";
    assert_eq!(stage.sql(lasts).await, "t");
    stage.sql("update ceremonies set expires_at = now()").await;
    assert_eq!(take(&other).await, None);
}
