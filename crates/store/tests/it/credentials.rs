//! Passwords and email addresses.

use std::time::Duration;

use ipseity_store::{SessionLimits, StoreRefusal};

use crate::fixture::{EMAILS_PER_HOUR_MAX, StoreFixture, email, expect_refusal, random_digest, session_limits};

const LIMITS: SessionLimits = session_limits(Duration::from_secs(86_400));

#[tokio::test(flavor = "multi_thread")]
async fn credentials_belong_to_one_account_or_are_absent() {
    let fixture = StoreFixture::open().await;
    let store = &fixture.store;
    let created = store
        .accounts()
        .create_with_password(&email("Ada@ipseity.example"), "hash of ada")
        .await
        .expect("account is created");
    let other = store
        .accounts()
        .create_with_password(&email("bob@ipseity.example"), "hash of bob")
        .await
        .expect("account is created");
    let without_password = fixture.create_account().await;
    assert_eq!(
        expect_refusal(store.accounts().create_with_password(&email("ADA@ipseity.example"), "x").await),
        StoreRefusal::AccountExists
    );

    let found = store
        .accounts()
        .find_credentials(&email("ada@IPSEITY.example"))
        .await
        .expect("query succeeds")
        .expect("account exists");
    assert_eq!((found.account_id, found.password_hash.as_deref()), (created.id, Some("hash of ada")));
    assert_eq!(store.accounts().password_hash(other.id).await.expect("query succeeds").as_deref(), Some("hash of bob"));
    assert_eq!(store.accounts().password_hash(without_password.id).await.expect("query succeeds"), None);
    assert_eq!(store.accounts().password_hash(0).await.expect("query succeeds"), None);
    assert!(
        store.accounts().find_credentials(&email("unknown@ipseity.example")).await.expect("query succeeds").is_none()
    );

    let account = store.accounts().find(created.id).await.expect("query succeeds").expect("account exists");
    assert_eq!(
        (account.email.as_str(), account.plan.as_str(), account.daily_limit),
        ("ada@ipseity.example", "free", 10_000)
    );
    assert!(store.accounts().find(0).await.expect("query succeeds").is_none());
    let log = fixture.postgres.log().expect("log is readable");
    assert!(!log.to_lowercase().contains("ada@"), "a duplicate address is in the server's log");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_password_ends_other_sessions_and_links_of_that_account() {
    let fixture = StoreFixture::open().await;
    let store = &fixture.store;
    let (account, other) = (fixture.create_account().await, fixture.create_account().await);
    let address = |account: &ipseity_store::Account| email(&account.email);
    let (kept_session, ended, other_session) = (
        fixture.open_session_for(&account, random_digest()).await,
        fixture.open_session_for(&account, random_digest()).await,
        fixture.open_session_for(&other, random_digest()).await,
    );
    for owner in [&account, &other] {
        store
            .email_requests(EMAILS_PER_HOUR_MAX)
            .request_password_reset(&address(owner))
            .await
            .expect("request is stored");
        store
            .email_requests(EMAILS_PER_HOUR_MAX)
            .request_email_change(owner.id, &email("new@ipseity.example"))
            .await
            .expect("request is stored");
        store.email_tokens().create_invite(&address(owner), &random_digest()).await.expect("invitation is created");
    }

    for owner in [&account, &other] {
        store.devices().remember(owner.id, &random_digest(), "Firefox").await.expect("device is recorded");
        fixture.add_passkey(owner, &random_digest()).await;
    }

    let cookie = random_digest();
    let set_password = async |session_id, hash, delete_credentials| {
        store.accounts().set_password(account.id, hash, session_id, &cookie, delete_credentials).await
    };
    set_password(kept_session, "new", false).await.expect("password is set");
    assert_eq!(store.accounts().password_hash(account.id).await.expect("query succeeds").as_deref(), Some("new"));
    assert_eq!(store.accounts().password_hash(other.id).await.expect("query succeeds"), None);
    let sessions = "select account_id, count(*), min(id) from sessions group by 1 order by 1";
    let expected = format!("{}|1|{kept_session}\n{}|2|{other_session}", account.id, other.id);
    assert_eq!(fixture.sql(sessions).await, expected);
    let renewed = store.sessions().authenticate(&cookie, LIMITS).await.expect("query succeeds");
    assert_eq!(renewed.map(|renewed| renewed.session_id), Some(kept_session), "the session has a new cookie");
    for ended_session in [ended, other_session] {
        let refused = set_password(ended_session, "late", true).await;
        assert_eq!(expect_refusal(refused), StoreRefusal::SessionEnded);
    }
    let remaining = fixture.sql("select kind, account_id, email from tickets order by kind").await;
    let (id, other_email) = (other.id, &other.email);
    assert_eq!(remaining, format!("email|{id}|new@ipseity.example\ninvite||{other_email}\nreset||{other_email}"));

    assert_eq!(fixture.sql("select distinct account_id from devices").await, other.id.to_string());
    assert_eq!(fixture.sql("select count(*) from passkeys").await, "2");

    fixture
        .sql(&format!(
            "insert into personal_tokens (id, account_id, name, digest, scopes)
             select lpad(id::text, 10, '0'), id, 'robot', sha256(id::text::bytea), '{{}}' from accounts;
             update accounts set tokens_may_resume = true where id = {}",
            account.id
        ))
        .await;
    set_password(kept_session, "newer", true).await.expect("password is set");
    assert_eq!(fixture.sql("select account_id from personal_tokens").await, other.id.to_string());
    assert!(!store.personal_tokens().may_resume(account.id).await.expect("query succeeds"));
    assert_eq!(store.sessions().list(account.id, LIMITS).await.expect("sessions are listed").len(), 1);
    assert_eq!(fixture.sql("select account_id from passkeys").await, other.id.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn hash_is_upgraded_only_if_the_old_one_is_stored() {
    let fixture = StoreFixture::open().await;
    let accounts = fixture.store.accounts();
    let create = async |name| accounts.create_with_password(&email(name), "old").await.expect("account is created");
    let (account, other) = (create("ada@ipseity.example").await, create("bob@ipseity.example").await);
    fixture.open_session_for(&account, random_digest()).await;
    let requests = fixture.store.email_requests(EMAILS_PER_HOUR_MAX);
    requests.request_password_reset(&email(&account.email)).await.expect("request is stored");

    for (old_hash, new_hash, is_upgraded) in [("another", "x", false), ("old", "new", true), ("old", "late", false)] {
        let upgraded = accounts.upgrade_password_hash(account.id, old_hash, new_hash).await.expect("query succeeds");
        assert_eq!(upgraded, is_upgraded, "{old_hash} to {new_hash}");
    }
    assert_eq!(accounts.password_hash(account.id).await.expect("query succeeds").as_deref(), Some("new"));
    assert_eq!(accounts.password_hash(other.id).await.expect("query succeeds").as_deref(), Some("old"));
    let remaining = "select (select count(*) from sessions), (select count(*) from tickets)";
    assert_eq!(fixture.sql(remaining).await, "1|1", "sessions and links stay");
}
