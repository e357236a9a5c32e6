//! Accounts of other providers: an identity belongs to one account, and only a session of that account links it.

use ipseity_store::{NewIdentity, NewSession, SessionStart, StoreRefusal};
use tokio::task::JoinSet;

use crate::fixture::{EMAILS_PER_HOUR_MAX, StoreFixture, email, expect_refusal, random_digest};

const ISSUER: &str = "https://idp.example";

const fn identity(subject: &str) -> NewIdentity<'_> {
    NewIdentity { issuer: ISSUER, subject, label: "ada@example.com" }
}

#[tokio::test(flavor = "multi_thread")]
async fn identity_finds_its_account_until_unlinked() {
    let fixture = StoreFixture::open().await;
    let (store, account, other) = (&fixture.store, fixture.create_account().await, fixture.create_account().await);
    let [session, other_session] = [
        fixture.open_session_for(&account, random_digest()).await,
        fixture.open_session_for(&other, random_digest()).await,
    ];
    let link = async |account_id, session_id, new: NewIdentity<'static>| {
        store.identities().link(account_id, session_id, &new).await
    };
    let find = async |issuer, subject| store.identities().find_account(issuer, subject).await.expect("query succeeds");
    assert_eq!(find(ISSUER, "1").await, None);
    assert!(link(account.id, session, identity("1")).await.expect("identity is linked"));
    assert!(!link(account.id, session, identity("1")).await.expect("query succeeds"), "linked before");
    // The same address, and the same subject at another provider, are other people.
    assert!(link(other.id, other_session, identity("2")).await.expect("identity is linked"));
    let elsewhere = NewIdentity { issuer: "https://other.example", ..identity("1") };
    assert!(link(other.id, other_session, elsewhere).await.expect("identity is linked"));
    for (account_id, session_id, subject, refusal) in [
        (other.id, other_session, "1", StoreRefusal::IdentityTaken),
        (account.id, other_session, "3", StoreRefusal::SessionEnded),
        (0, session, "3", StoreRefusal::SessionEnded),
    ] {
        assert_eq!(expect_refusal(link(account_id, session_id, identity(subject)).await), refusal);
    }

    let [unused] = &store.identities().list(account.id).await.expect("identities are listed")[..] else {
        panic!("one identity")
    };
    assert_eq!((unused.issuer.as_str(), unused.label.as_str(), unused.used_s), (ISSUER, "ada@example.com", None));
    assert_eq!(find(ISSUER, "1").await, Some((account.id, unused.id)));
    assert_eq!(find(ISSUER, "2").await.map(|(account_id, _)| account_id), Some(other.id));
    assert_eq!(find("https://other.example", "1").await.map(|(account_id, _)| account_id), Some(other.id));
    assert_eq!(find("https://IDP.example", "1").await, None);
    let used = &store.identities().list(account.id).await.expect("identities are listed")[0];
    assert!(used.used_s >= Some(used.created_s), "{used:?}");

    let open = async |account_id, identity_id| {
        let (digest, device_digest) = (&random_digest(), &random_digest());
        let start = SessionStart::Identity(identity_id);
        store.sessions().open(&NewSession { account_id, digest, label: "Firefox", device_digest, start }).await
    };
    open(account.id, used.id).await.expect("session is opened");
    assert_eq!(expect_refusal(open(other.id, used.id).await), StoreRefusal::SessionEnded);
    let unlink = async |account_id, session_id| store.identities().unlink(account_id, session_id, used.id).await;
    assert!(!unlink(other.id, other_session).await.expect("query succeeds"), "the identity of another account");
    assert_eq!(expect_refusal(unlink(account.id, other_session).await), StoreRefusal::SessionEnded);
    let [waiting, other_waiting] = [random_digest(), random_digest()];
    store.two_factor().save_pending(&waiting, account.id).await.expect("sign-in is saved");
    store.two_factor().save_pending(&other_waiting, other.id).await.expect("sign-in is saved");
    assert!(unlink(account.id, session).await.expect("identity is unlinked"));
    assert_eq!(find(ISSUER, "1").await, None);
    // A sign-in that had found the identity before.
    assert_eq!(expect_refusal(open(account.id, used.id).await), StoreRefusal::SessionEnded);
    assert_eq!(store.two_factor().find_pending(&waiting).await.expect("query succeeds"), None);
    assert_eq!(store.two_factor().find_pending(&other_waiting).await.expect("query succeeds"), Some(other.id));
    let events = format!(
        "select kind, subject from notices where account_id = {} and kind like 'identity%' order by id",
        account.id
    );
    let subject = "ada@example.com (https://idp.example)";
    assert_eq!(fixture.sql(&events).await, format!("identity_linked|{subject}\nidentity_unlinked|{subject}"));
    // Another account may link it now.
    assert!(link(other.id, other_session, identity("1")).await.expect("identity is linked"));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_links_of_an_identity_reach_one_account() {
    let fixture = StoreFixture::open().await;
    let mut race = JoinSet::new();
    for _ in 0..12 {
        let (store, account) = (fixture.store.clone(), fixture.create_account().await);
        let session = fixture.open_session_for(&account, random_digest()).await;
        race.spawn(async move { store.identities().link(account.id, session, &identity("1")).await });
    }
    let (linked, others): (Vec<_>, Vec<_>) = race.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(linked.len(), 1);
    assert!(others.into_iter().all(|outcome| expect_refusal(outcome) == StoreRefusal::IdentityTaken));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_links_stop_at_ten_identities_per_account() {
    let fixture = StoreFixture::open().await;
    let account = fixture.create_account().await;
    let session = fixture.open_session_for(&account, random_digest()).await;
    let mut race = JoinSet::new();
    for number in 0..25 {
        let (store, subject) = (fixture.store.clone(), number.to_string());
        race.spawn(async move { store.identities().link(account.id, session, &identity(&subject)).await });
    }
    let (linked, others): (Vec<_>, Vec<_>) = race.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(linked.len(), 10);
    assert!(others.into_iter().all(|outcome| expect_refusal(outcome) == StoreRefusal::IdentityLimitReached));
}

#[tokio::test(flavor = "multi_thread")]
async fn password_reset_and_deletion_unlink_identities() {
    let fixture = StoreFixture::open().await;
    let (store, account, other) = (&fixture.store, fixture.create_account().await, fixture.create_account().await);
    for (owner, subject) in [(&account, "1"), (&other, "2")] {
        let session = fixture.open_session_for(owner, random_digest()).await;
        store.identities().link(owner.id, session, &identity(subject)).await.expect("identity is linked");
    }
    let requests = store.email_requests(EMAILS_PER_HOUR_MAX);
    requests.request_password_reset(&email(&account.email)).await.expect("request is stored");
    let digest = random_digest();
    store.email_queue().claim_next(&digest).await.expect("queue is read").expect("email is queued");
    store.email_tokens().redeem_password(&digest, "hash").await.expect("password is set");
    let subjects = "select subject from identities";
    assert_eq!(fixture.sql(subjects).await, "2");
    let unlinked = "select count(*) from security_events where kind = 'identity_unlinked'";
    assert_eq!(fixture.sql(unlinked).await, "1");
    store.accounts().delete(other.id, None).await.expect("account is deleted");
    assert_eq!(fixture.sql(subjects).await, "");
}
