//! Redemption of email tokens, once each.

use std::time::Duration;

use ipseity_domain::account::EmailAddress;
use ipseity_store::{SecurityEvent, SessionLimits, Store, StoreRefusal};
use tokio::task::JoinSet;

use crate::fixture::{EMAILS_PER_HOUR_MAX, StoreFixture, email, expect_refusal, random_digest, session_limits};

const LIMITS: SessionLimits = session_limits(Duration::from_secs(86_400));

/// The digest of the token in the next email.
async fn claim_link(store: &Store) -> [u8; 32] {
    let digest = random_digest();
    store.email_queue().claim_next(&digest).await.expect("claim succeeds").expect("an email is due");
    digest
}

async fn request_sign_up_link(store: &Store, address: &EmailAddress) -> [u8; 32] {
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_signup(address, "chosen", &random_digest())
        .await
        .expect("request is stored");
    claim_link(store).await
}

async fn expire_tokens(fixture: &StoreFixture) {
    fixture.sql("update tickets set expires_at = now()").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_sign_up_confirmations_create_one_account() {
    let fixture = StoreFixture::open().await;
    let (store, address) = (&fixture.store, email("ada@ipseity.example"));
    let (first, second) = (request_sign_up_link(store, &address).await, request_sign_up_link(store, &address).await);
    let mut race = JoinSet::new();
    for _ in 0..10 {
        let store = store.clone();
        race.spawn(async move { store.email_tokens().redeem_signup(&first).await.map(|account| account.id) });
    }
    let (created, others): (Vec<_>, Vec<_>) = race.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(created.len(), 1);
    assert!(others.into_iter().all(|outcome| expect_refusal(outcome) == StoreRefusal::InvalidEmailToken));

    let account = store.accounts().get_by_email(&address).await.expect("account exists");
    assert_eq!((account.plan.as_str(), account.daily_limit), ("free", 10_000));
    assert_eq!(store.accounts().password_hash(account.id).await.expect("query succeeds").as_deref(), Some("chosen"));
    assert_eq!(expect_refusal(store.email_tokens().redeem_signup(&second).await), StoreRefusal::AccountExists);
    assert_eq!(
        expect_refusal(store.email_tokens().redeem_signup(&second).await),
        StoreRefusal::InvalidEmailToken,
        "the token was already used"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_or_wrong_kind_of_link_is_rejected() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let sign_up = request_sign_up_link(store, &email("ada@ipseity.example")).await;
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_password_reset(&email(&account.email))
        .await
        .expect("request is stored");
    let reset = claim_link(store).await;
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_email_change(account.id, &email("new@ipseity.example"))
        .await
        .expect("request is stored");
    let new_email = claim_link(store).await;

    for other in [reset, new_email, random_digest()] {
        assert_eq!(expect_refusal(store.email_tokens().redeem_signup(&other).await), StoreRefusal::InvalidEmailToken);
    }
    for other in [sign_up, new_email, random_digest()] {
        assert_eq!(
            expect_refusal(store.email_tokens().redeem_password(&other, "x").await),
            StoreRefusal::InvalidEmailToken
        );
    }
    for other in [sign_up, reset, random_digest()] {
        assert_eq!(
            expect_refusal(store.email_tokens().redeem_email_change(&other).await),
            StoreRefusal::InvalidEmailToken
        );
    }
    assert_eq!(
        fixture.sql("select count(*) from tickets").await,
        "3",
        "a failed redemption does not consume the token"
    );

    expire_tokens(&fixture).await;
    assert_eq!(expect_refusal(store.email_tokens().redeem_signup(&sign_up).await), StoreRefusal::InvalidEmailToken);
    assert_eq!(
        expect_refusal(store.email_tokens().redeem_password(&reset, "x").await),
        StoreRefusal::InvalidEmailToken
    );
    assert_eq!(
        expect_refusal(store.email_tokens().redeem_email_change(&new_email).await),
        StoreRefusal::InvalidEmailToken
    );
    assert_eq!(fixture.sql("select count(*), count(password_hash) from accounts").await, "1|0");
}

#[tokio::test(flavor = "multi_thread")]
async fn password_reset_ends_sessions_and_other_links() {
    let fixture = StoreFixture::open().await;
    let (store, account, other) = (&fixture.store, fixture.create_account().await, fixture.create_account().await);
    for owner in [&account, &account, &other] {
        store
            .email_requests(EMAILS_PER_HOUR_MAX)
            .request_password_reset(&email(&owner.email))
            .await
            .expect("request is stored");
    }
    let (first, second, other_link) = (claim_link(store).await, claim_link(store).await, claim_link(store).await);
    let session = random_digest();
    fixture.open_session_for(&account, session).await;
    fixture.open_session_for(&other, random_digest()).await;

    assert_eq!(store.email_tokens().redeem_password(&first, "new").await.expect("password is set"), account.id);
    assert_eq!(store.accounts().password_hash(account.id).await.expect("query succeeds").as_deref(), Some("new"));
    assert!(store.sessions().authenticate(&session, LIMITS).await.expect("query succeeds").is_none());
    for used_link in [first, second] {
        assert_eq!(
            expect_refusal(store.email_tokens().redeem_password(&used_link, "x").await),
            StoreRefusal::InvalidEmailToken
        );
    }
    assert_eq!(store.sessions().list(other.id, LIMITS).await.expect("sessions are listed").len(), 1);
    assert_eq!(store.email_tokens().redeem_password(&other_link, "theirs").await.expect("password is set"), other.id);
    assert_eq!(store.accounts().password_hash(account.id).await.expect("query succeeds").as_deref(), Some("new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn password_reset_for_a_changed_address_is_rejected() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_password_reset(&email(&account.email))
        .await
        .expect("request is stored");
    let reset = claim_link(store).await;
    fixture.sql("update accounts set email = 'elsewhere@ipseity.example'").await;
    assert_eq!(
        expect_refusal(store.email_tokens().redeem_password(&reset, "x").await),
        StoreRefusal::InvalidEmailToken
    );
    assert_eq!(store.accounts().password_hash(account.id).await.expect("query succeeds"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn invitation_ends_when_an_account_gets_its_address() {
    let fixture = StoreFixture::open().await;
    let (tokens, account) = (fixture.store.email_tokens(), fixture.create_account().await);
    let (ada, bob) = (email("ada@ipseity.example"), email("bob@ipseity.example"));
    let (of_ada, of_bob) = (random_digest(), random_digest());
    assert!(tokens.create_first_invite(&ada, &of_ada).await.expect("invitation is created"));
    assert!(tokens.create_first_invite(&bob, &of_bob).await.expect("invitation is created"));
    fixture.store.accounts().create(&ada, "free").await.expect("account is created");
    fixture.sql(&format!("update accounts set email = '{}' where id = {}", bob.as_str(), account.id)).await;
    for digest in [of_ada, of_bob] {
        assert!(tokens.find(&digest).await.expect("query succeeds").is_none());
        let redeemed = tokens.redeem_password(&digest, "of the operator").await;
        assert_eq!(expect_refusal(redeemed), StoreRefusal::InvalidEmailToken);
    }
    assert!(!tokens.create_first_invite(&ada, &random_digest()).await.expect("query succeeds"), "ada has an account");
}

#[tokio::test(flavor = "multi_thread")]
async fn invite_creates_account_or_sets_existing_password() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let (new, old) = (random_digest(), random_digest());
    store.email_tokens().create_invite(&email("eve@ipseity.example"), &new).await.expect("invitation is created");
    store
        .email_tokens()
        .create_invite(&email(&account.email.to_uppercase()), &old)
        .await
        .expect("invitation is created");

    let created = store.email_tokens().redeem_password(&new, "of eve").await.expect("password is set");
    assert_eq!(store.accounts().get_by_email(&email("eve@ipseity.example")).await.expect("account exists").id, created);
    assert_eq!(store.accounts().password_hash(created).await.expect("query succeeds").as_deref(), Some("of eve"));
    assert_eq!(store.email_tokens().redeem_password(&old, "own").await.expect("password is set"), account.id);
    assert_eq!(expect_refusal(store.email_tokens().redeem_password(&new, "x").await), StoreRefusal::InvalidEmailToken);
    assert_eq!(fixture.sql("select count(*) from accounts").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn email_change_uses_last_requested_address_unless_taken() {
    let fixture = StoreFixture::open().await;
    let (store, account, other) = (&fixture.store, fixture.create_account().await, fixture.create_account().await);
    let request_link = async |address: &str| {
        store
            .email_requests(EMAILS_PER_HOUR_MAX)
            .request_email_change(account.id, &email(address))
            .await
            .expect("request is stored");
        claim_link(store).await
    };
    let mistyped = request_link("tpyo@ipseity.example").await;
    let intended = request_link("typo@ipseity.example").await;
    assert_eq!(
        expect_refusal(store.email_tokens().redeem_email_change(&mistyped).await),
        StoreRefusal::InvalidEmailToken,
        "a later request replaced it"
    );
    assert_eq!(store.email_tokens().redeem_email_change(&intended).await.expect("email address is set"), account.id);
    assert_eq!(
        expect_refusal(store.email_tokens().redeem_email_change(&intended).await),
        StoreRefusal::InvalidEmailToken
    );
    let emails = "select email from accounts order by id";
    assert_eq!(fixture.sql(emails).await, format!("typo@ipseity.example\n{}", other.email));

    let same = request_link("Typo@ipseity.example").await;
    assert_eq!(store.email_tokens().redeem_email_change(&same).await.expect("email address is set"), account.id);
    let taken = request_link(&other.email.to_uppercase()).await;
    for _ in 0..2 {
        assert_eq!(expect_refusal(store.email_tokens().redeem_email_change(&taken).await), StoreRefusal::AccountExists);
    }
    assert_eq!(fixture.sql(emails).await, format!("typo@ipseity.example\n{}", other.email));
}

/// Changes the address of an account. Returns the digest of the link that restores the previous one.
async fn change_email(store: &Store, account_id: i64, address: &str) -> [u8; 32] {
    let requests = store.email_requests(EMAILS_PER_HOUR_MAX);
    requests.request_email_change(account_id, &email(address)).await.expect("request is stored");
    store.email_tokens().redeem_email_change(&claim_link(store).await).await.expect("email address is set");
    claim_notices(store)
        .await
        .into_iter()
        .find(|(kind, _, _)| *kind == SecurityEvent::EmailChanged)
        .expect("link is sent")
        .2
}

/// Claims all notices, with their recipients and the digests of their links.
async fn claim_notices(store: &Store) -> Vec<(SecurityEvent, String, [u8; 32])> {
    let mut notices = Vec::new();
    loop {
        let digest = random_digest();
        let Some(notice) = store.notice_queue().claim_next(&digest).await.expect("claim succeeds") else { break };
        store.notice_queue().mark_sent(notice.id).await.expect("notice is marked");
        notices.push((notice.event, notice.email, digest));
    }
    notices
}

#[tokio::test(flavor = "multi_thread")]
async fn address_that_an_owner_replaces_again_cannot_be_restored() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let owners = change_email(store, account.id, "attacker@ipseity.example").await;
    // The owner takes the address back without the link.
    let requests = store.email_requests(EMAILS_PER_HOUR_MAX);
    requests.request_email_change(account.id, &email(&account.email)).await.expect("request is stored");
    store.email_tokens().redeem_email_change(&claim_link(store).await).await.expect("email address is set");
    let [(kind, recipient, link)] = claim_notices(store).await.try_into().expect("one notice");
    assert_eq!((kind, recipient.as_str()), (SecurityEvent::EmailRestored, "attacker@ipseity.example"));
    for useless in [link, owners] {
        let restored = store.email_tokens().restore_email(&useless, "x").await;
        assert_eq!(expect_refusal(restored), StoreRefusal::InvalidEmailToken);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_address_can_be_restored_as_long_as_any_later_one() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let owners = change_email(store, account.id, "attacker@ipseity.example").await;
    fixture.sql("update notices set created_at = created_at - interval '5 days', expires_at = expires_at - interval '5 days'").await;
    let attackers = change_email(store, account.id, "owners-other@ipseity.example").await;
    assert_eq!(fixture.sql("select count(distinct expires_at), count(*) from notices").await, "1|2");
    store.email_tokens().restore_email(&attackers, "x").await.expect("email is restored");
    let notices = claim_notices(store).await.into_iter().map(|(event, recipient, _)| (event, recipient));
    let expected = [
        (SecurityEvent::EmailRestored, "owners-other@ipseity.example".to_owned()),
        (SecurityEvent::PasswordChanged, "attacker@ipseity.example".to_owned()),
    ];
    assert_eq!(notices.collect::<Vec<_>>(), expected);
    store.email_tokens().restore_email(&owners, "y").await.expect("email is restored");
    assert_eq!(fixture.sql("select email from accounts").await, account.email);
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_address_ends_later_restore_links_but_not_earlier_ones() {
    let fixture = StoreFixture::open().await;
    let (store, account, other) = (&fixture.store, fixture.create_account().await, fixture.create_account().await);
    let owners = change_email(store, account.id, "first@ipseity.example").await;
    let attackers = change_email(store, account.id, "second@ipseity.example").await;
    let emails = "select email from accounts order by id";

    assert_eq!(store.email_tokens().restore_email(&attackers, "hash").await.expect("email is restored"), account.id);
    assert_eq!(fixture.sql(emails).await, format!("first@ipseity.example\n{}", other.email));
    let attackers = change_email(store, account.id, "third@ipseity.example").await;
    fixture.add_passkey(&account, b"planted").await;
    store.devices().remember(account.id, &random_digest(), "Firefox").await.expect("device is recorded");
    fixture.open_session_for(&account, random_digest()).await;
    fixture.open_session_for(&other, random_digest()).await;

    assert_eq!(store.email_tokens().restore_email(&owners, "new").await.expect("email is restored"), account.id);
    assert_eq!(fixture.sql(emails).await, format!("{}\n{}", account.email, other.email));
    assert_eq!(store.accounts().password_hash(account.id).await.expect("query succeeds").as_deref(), Some("new"));
    let remaining =
        "select (select count(*) from passkeys), (select count(*) from devices), (select count(*) from sessions)";
    assert_eq!(fixture.sql(remaining).await, "0|1|1", "only the device and the session of the other account are left");
    for used_link in [owners, attackers] {
        let again = store.email_tokens().restore_email(&used_link, "x").await;
        assert_eq!(expect_refusal(again), StoreRefusal::InvalidEmailToken);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restore_link_expires_after_seven_days_and_is_used_once() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let link = change_email(store, account.id, "new@ipseity.example").await;
    assert_eq!(fixture.sql("select expires_at - created_at from notices").await, "7 days");
    let mut race = JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        race.spawn(async move { store.email_tokens().restore_email(&link, "hash").await });
    }
    assert_eq!(race.join_all().await.iter().filter(|outcome| outcome.is_ok()).count(), 1);

    let link = change_email(store, account.id, "new@ipseity.example").await;
    fixture.sql("update notices set expires_at = now()").await;
    assert!(store.email_tokens().find(&link).await.expect("query succeeds").is_none());
    assert_eq!(expect_refusal(store.email_tokens().restore_email(&link, "x").await), StoreRefusal::InvalidEmailToken);
}
