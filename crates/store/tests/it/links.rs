//! Links that are followed: each does its work once.

use std::time::Duration;

use domain::account::Email;
use store::{Refused, Store};
use tokio::task::JoinSet;

use crate::stage::{Stage, digest, email, refused};

const IDLE_MAX: Duration = Duration::from_secs(86_400);

/// The digest of the link that the next mail carries.
async fn link(store: &Store) -> [u8; 32] {
    let digest = digest();
    store.next_letter(&digest).await.expect("an answer").expect("a letter");
    digest
}

async fn sign_up_link(store: &Store, address: &Email) -> [u8; 32] {
    store.request_signup(address, "chosen", &digest()).await.expect("a wish");
    link(store).await
}

async fn expire(stage: &Stage) {
    stage.sql("update tickets set expires_at = now()").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_sign_up_makes_one_account_whoever_races() {
    let stage = Stage::open().await;
    let (store, address) = (&stage.store, email("ada@house.example"));
    let (first, second) = (sign_up_link(store, &address).await, sign_up_link(store, &address).await);
    let mut race = JoinSet::new();
    for _ in 0..10 {
        let store = store.clone();
        race.spawn(async move { store.confirm_signup(&first).await.map(|account| account.id) });
    }
    let (made, others): (Vec<_>, Vec<_>) = race.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(made.len(), 1);
    assert!(others.into_iter().all(|outcome| refused(outcome) == Refused::LinkGone));

    let account = store.account(&address).await.expect("an account");
    assert_eq!((account.plan.as_str(), account.daily_limit), ("free", 10_000));
    assert_eq!(store.password_hash(account.id).await.expect("an answer").as_deref(), Some("chosen"));
    assert_eq!(refused(store.confirm_signup(&second).await), Refused::AccountExists);
    assert_eq!(refused(store.confirm_signup(&second).await), Refused::LinkGone, "used up by then");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_does_nothing_after_its_time_or_for_another_purpose() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    let sign_up = sign_up_link(store, &email("ada@house.example")).await;
    store.request_reset(&email(&account.email)).await.expect("a wish");
    let reset = link(store).await;
    store.request_email(account.id, &email("new@house.example")).await.expect("a wish");
    let new_email = link(store).await;

    for other in [reset, new_email, digest()] {
        assert_eq!(refused(store.confirm_signup(&other).await), Refused::LinkGone);
    }
    for other in [sign_up, new_email, digest()] {
        assert_eq!(refused(store.take_new_password(&other, "x").await), Refused::LinkGone);
    }
    for other in [sign_up, reset, digest()] {
        assert_eq!(refused(store.take_new_email(&other).await), Refused::LinkGone);
    }
    assert_eq!(stage.sql("select count(*) from tickets").await, "3", "and is not used up by it");

    expire(&stage).await;
    assert_eq!(refused(store.confirm_signup(&sign_up).await), Refused::LinkGone);
    assert_eq!(refused(store.take_new_password(&reset, "x").await), Refused::LinkGone);
    assert_eq!(refused(store.take_new_email(&new_email).await), Refused::LinkGone);
    assert_eq!(stage.sql("select count(*), count(password_hash) from accounts").await, "1|0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_gives_a_new_password_and_closes_every_other_way_in() {
    let stage = Stage::open().await;
    let (store, account, other) = (&stage.store, stage.account().await, stage.account().await);
    for owner in [&account, &account, &other] {
        store.request_reset(&email(&owner.email)).await.expect("a wish");
    }
    let (first, second, strangers) = (link(store).await, link(store).await, link(store).await);
    let session = digest();
    stage.session_of(&account, session).await;
    stage.session_of(&other, digest()).await;

    assert_eq!(store.take_new_password(&first, "new").await.expect("a password"), account.id);
    assert_eq!(store.password_hash(account.id).await.expect("an answer").as_deref(), Some("new"));
    assert!(store.find_member(&session, IDLE_MAX).await.expect("an answer").is_none());
    for gone in [first, second] {
        assert_eq!(refused(store.take_new_password(&gone, "x").await), Refused::LinkGone);
    }
    assert_eq!(store.sessions(other.id, IDLE_MAX).await.expect("sessions").len(), 1);
    assert_eq!(store.take_new_password(&strangers, "theirs").await.expect("a password"), other.id);
    assert_eq!(store.password_hash(account.id).await.expect("an answer").as_deref(), Some("new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_for_an_address_that_moved_away_is_gone() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    store.request_reset(&email(&account.email)).await.expect("a wish");
    let reset = link(store).await;
    stage.sql("update accounts set email = 'elsewhere@house.example'").await;
    assert_eq!(refused(store.take_new_password(&reset, "x").await), Refused::LinkGone);
    assert_eq!(store.password_hash(account.id).await.expect("an answer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_makes_the_account_or_opens_the_one_there_is() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    let (new, old) = (digest(), digest());
    store.invite(&email("eve@house.example"), &new).await.expect("a link");
    store.invite(&email(&account.email.to_uppercase()), &old).await.expect("a link");

    let made = store.take_new_password(&new, "of eve").await.expect("an account");
    assert_eq!(store.account(&email("eve@house.example")).await.expect("an account").id, made);
    assert_eq!(store.password_hash(made).await.expect("an answer").as_deref(), Some("of eve"));
    assert_eq!(store.take_new_password(&old, "own").await.expect("a password"), account.id);
    assert_eq!(refused(store.take_new_password(&new, "x").await), Refused::LinkGone);
    assert_eq!(stage.sql("select count(*) from accounts").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_moves_to_the_address_it_asked_for_last_unless_that_is_taken() {
    let stage = Stage::open().await;
    let (store, account, other) = (&stage.store, stage.account().await, stage.account().await);
    let ask = async |address: &str| {
        store.request_email(account.id, &email(address)).await.expect("a wish");
        link(store).await
    };
    let mistyped = ask("tpyo@house.example").await;
    let meant = ask("typo@house.example").await;
    assert_eq!(refused(store.take_new_email(&mistyped).await), Refused::LinkGone, "a later wish replaced it");
    assert_eq!(store.take_new_email(&meant).await.expect("an address"), account.id);
    assert_eq!(refused(store.take_new_email(&meant).await), Refused::LinkGone);
    let emails = "select email from accounts order by id";
    assert_eq!(stage.sql(emails).await, format!("typo@house.example\n{}", other.email));

    let same = ask("Typo@house.example").await;
    assert_eq!(store.take_new_email(&same).await.expect("another spelling"), account.id);
    let taken = ask(&other.email.to_uppercase()).await;
    assert_eq!(refused(store.take_new_email(&taken).await), Refused::AccountExists);
    assert_eq!(refused(store.take_new_email(&taken).await), Refused::LinkGone);
    assert_eq!(stage.sql(emails).await, format!("Typo@house.example\n{}", other.email));
}
