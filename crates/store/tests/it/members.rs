//! Members: passwords, and which mails they want.

use std::time::Duration;

use store::{AlertSwitches, Refused};

use crate::stage::{Stage, digest, email, refused};

const IDLE_MAX: Duration = Duration::from_secs(86_400);

#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_credentials_of_its_own_or_none() {
    let stage = Stage::open().await;
    let store = &stage.store;
    let made = store.create_member(&email("Ada@house.example"), "hash of ada").await.expect("a member");
    let other = store.create_member(&email("bob@house.example"), "hash of bob").await.expect("a member");
    let operators = stage.account().await;
    assert_eq!(refused(store.create_member(&email("ADA@house.example"), "x").await), Refused::AccountExists);

    let found = store.find_credentials(&email("ada@HOUSE.example")).await.expect("an answer").expect("credentials");
    assert_eq!((found.account_id, found.password_hash.as_deref()), (made.id, Some("hash of ada")));
    assert_eq!(store.password_hash(other.id).await.expect("an answer").as_deref(), Some("hash of bob"));
    assert_eq!(store.password_hash(operators.id).await.expect("an answer"), None);
    assert_eq!(store.password_hash(0).await.expect("an answer"), None);
    assert!(store.find_credentials(&email("nobody@house.example")).await.expect("an answer").is_none());

    let account = store.find_account(made.id).await.expect("an answer").expect("an account");
    assert_eq!(
        (account.email.as_str(), account.plan.as_str(), account.daily_limit),
        ("Ada@house.example", "free", 10_000)
    );
    assert!(store.find_account(0).await.expect("an answer").is_none());
    let log = stage.postgres.log().expect("a log");
    assert!(!log.to_lowercase().contains("ada@"), "a taken address is in the server's log");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_password_ends_other_sessions_and_links_of_the_account_alone() {
    let stage = Stage::open().await;
    let store = &stage.store;
    let (account, other) = (stage.account().await, stage.account().await);
    let address = |account: &store::Account| email(&account.email);
    let (kept, _ended, strangers) = (
        stage.session_of(&account, digest()).await,
        stage.session_of(&account, digest()).await,
        stage.session_of(&other, digest()).await,
    );
    for owner in [&account, &other] {
        store.request_reset(&address(owner)).await.expect("a wish");
        store.request_email(owner.id, &email("new@house.example")).await.expect("a wish");
        store.invite(&address(owner), &digest()).await.expect("a link");
    }

    store.set_password(account.id, "new", Some(kept)).await.expect("a password");
    assert_eq!(store.password_hash(account.id).await.expect("an answer").as_deref(), Some("new"));
    assert_eq!(store.password_hash(other.id).await.expect("an answer"), None);
    assert_eq!(stage.sql("select id from sessions order by id").await, format!("{kept}\n{strangers}"));
    let left = stage.sql("select kind, account_id, email from tickets order by kind").await;
    let (id, own) = (other.id, &other.email);
    assert_eq!(left, format!("email|{id}|new@house.example\ninvite||{own}\nreset||{own}"));

    store.set_password(account.id, "newer", None).await.expect("a password");
    assert_eq!(store.sessions(account.id, IDLE_MAX).await.expect("sessions"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_are_wanted_until_they_are_switched_off() {
    let stage = Stage::open().await;
    let (store, account, other) = (&stage.store, stage.account().await, stage.account().await);
    let all = AlertSwitches { near: true, spent: true, paused: true };
    assert_eq!(store.alerts(account.id).await.expect("switches"), all);
    for wanted in [
        AlertSwitches { near: false, ..all },
        AlertSwitches { spent: false, ..all },
        AlertSwitches { paused: false, ..all },
    ] {
        store.set_alerts(account.id, wanted).await.expect("switches");
        assert_eq!(store.alerts(account.id).await.expect("switches"), wanted);
    }
    assert_eq!(store.alerts(other.id).await.expect("switches"), all);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_changes_its_address_unless_that_is_taken() {
    let stage = Stage::open().await;
    let (store, account, other) = (&stage.store, stage.account().await, stage.account().await);
    let taken = store.change_email(account.id, &email(&other.email.to_uppercase())).await;
    assert_eq!(refused(taken), Refused::AccountExists);
    store.request_email(account.id, &email("asked-before@house.example")).await.expect("a wish");
    store.request_email(other.id, &email("asked@house.example")).await.expect("a wish");
    store.change_email(account.id, &email("new@house.example")).await.expect("an address");
    assert_eq!(
        stage.sql("select email from accounts order by id").await,
        format!("new@house.example\n{}", other.email)
    );
    assert_eq!(
        stage.sql("select email from tickets").await,
        "asked@house.example",
        "links to other addresses are gone"
    );
    assert!(!stage.postgres.log().expect("a log").contains("@house.example"));
}
