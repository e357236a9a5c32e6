//! Requests for email tokens, and their hourly limit.

use ipseity_store::{Account, EmailTokenKind};
use tokio::task::JoinSet;

use crate::fixture::{EMAILS_PER_HOUR_MAX, StoreFixture, email, random_digest};

/// All email tokens without their times, oldest first.
async fn token_rows(fixture: &StoreFixture) -> Vec<String> {
    let rows = "select concat_ws(' ', kind, email, account_id, password_hash, encode(visit, 'hex'),
                       round(extract(epoch from expires_at - created_at) / 3600), mailed_at is not null, digest is null)
                from tickets order by id";
    fixture.sql(rows).await.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn email_requests_are_stored_alike_with_or_without_account() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let (registered, unregistered) = (email(&account.email), email("unknown@ipseity.example"));
    for address in [&registered, &unregistered] {
        store
            .email_requests(EMAILS_PER_HOUR_MAX)
            .request_signup(address, "hash", &[7; 32])
            .await
            .expect("request is stored");
        store.email_requests(EMAILS_PER_HOUR_MAX).request_password_reset(address).await.expect("request is stored");
        store
            .email_requests(EMAILS_PER_HOUR_MAX)
            .request_email_change(account.id, address)
            .await
            .expect("request is stored");
    }
    let browser_digest = "07".repeat(32);
    let expected_rows = |address: &str, email_hours| {
        [
            format!("signup {address} hash {browser_digest} 24 f t"),
            format!("reset {address} 1 f t"),
            format!("email {address} {} {email_hours} f t", account.id),
        ]
    };
    let expected = [expected_rows(registered.as_str(), 0), expected_rows(unregistered.as_str(), 24)].concat();
    assert_eq!(token_rows(&fixture).await, expected, "only the last email change request of an account is valid");

    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_email_change(0, &unregistered)
        .await
        .expect("request of a deleted account is ignored");
    assert_eq!(token_rows(&fixture).await.len(), 6);
    store.email_tokens().create_invite(&unregistered, &random_digest()).await.expect("invitation is created");
    assert_eq!(token_rows(&fixture).await[6], "invite unknown@ipseity.example 168 t f");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_stop_at_five_emails_per_kind_and_hour() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let limited = email("flooded@ipseity.example");
    let mut race = JoinSet::new();
    for number in 0..30 {
        let store = fixture.store.clone();
        let address = email(if number % 2 == 0 { "flooded@ipseity.example" } else { "Flooded@Ipseity.example" });
        race.spawn(async move { store.email_requests(EMAILS_PER_HOUR_MAX).request_password_reset(&address).await });
    }
    race.join_all().await.into_iter().collect::<Result<Vec<_>, _>>().expect("no request fails");
    let count = async |kind: &str| fixture.sql(&format!("select count(*) from tickets where kind = '{kind}'")).await;
    assert_eq!(count("reset").await, "5");

    // Requests of another kind, or for another address, do not count toward the limit of password resets.
    for _ in 0..7 {
        store
            .email_requests(EMAILS_PER_HOUR_MAX)
            .request_signup(&limited, "hash", &random_digest())
            .await
            .expect("request is stored");
        store
            .email_requests(EMAILS_PER_HOUR_MAX)
            .request_email_change(account.id, &limited)
            .await
            .expect("request is stored");
    }
    assert_eq!((count("signup").await.as_str(), count("email").await.as_str()), ("5", "5"));
    let valid = "select count(*) from tickets where kind = 'email' and expires_at > now()";
    assert_eq!(fixture.sql(valid).await, "1", "an ignored request leaves the last link valid");
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_password_reset(&email("calm@ipseity.example"))
        .await
        .expect("request is stored");
    assert_eq!(count("reset").await, "6");

    fixture.sql("update tickets set created_at = now() - interval '61 minutes'").await;
    store.email_requests(EMAILS_PER_HOUR_MAX).request_password_reset(&limited).await.expect("request is stored");
    assert_eq!(count("reset").await, "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn sent_emails_count_toward_the_limit_of_every_address() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    for address in [email(&account.email), email("unknown@ipseity.example")] {
        for _ in 0..8 {
            store
                .email_requests(EMAILS_PER_HOUR_MAX)
                .request_signup(&address, "hash", &random_digest())
                .await
                .expect("request is stored");
            store
                .email_requests(EMAILS_PER_HOUR_MAX)
                .request_password_reset(&address)
                .await
                .expect("request is stored");
            while let Some(queued) = store.email_queue().claim_next(&random_digest()).await.expect("claim succeeds") {
                store.email_queue().mark_sent(queued.token_id).await.expect("row is marked");
            }
        }
        let counts = format!("select count(*) from tickets where email = '{address}' group by kind");
        assert_eq!(fixture.sql(&counts).await, "5\n5");
    }
    let unlinked = "select count(*) from tickets where digest is null and password_hash is not null";
    assert_eq!(fixture.sql(unlinked).await, "0", "no hash is kept without a link");
}

#[tokio::test(flavor = "multi_thread")]
async fn email_token_is_found_by_digest_until_it_expires() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let Account { id, email: own_email, .. } = &account;
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_signup(&email("ada@ipseity.example"), "hash", &[7; 32])
        .await
        .expect("request is stored");
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_password_reset(&email(own_email))
        .await
        .expect("request is stored");
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_email_change(*id, &email("new@ipseity.example"))
        .await
        .expect("request is stored");
    let digests = [random_digest(), random_digest(), random_digest(), random_digest()];
    for digest in &digests[..3] {
        store.email_queue().claim_next(digest).await.expect("claim succeeds").expect("an email is due");
    }
    store
        .email_tokens()
        .create_invite(&email("eve@ipseity.example"), &digests[3])
        .await
        .expect("invitation is created");

    let expected = [
        (EmailTokenKind::SignUp, "ada@ipseity.example", None, Some([7; 32]), Some("hash")),
        (EmailTokenKind::PasswordReset, own_email.as_str(), None, None, None),
        (EmailTokenKind::EmailChange, "new@ipseity.example", Some(*id), None, None),
        (EmailTokenKind::Invite, "eve@ipseity.example", None, None, None),
    ];
    for (digest, expected) in digests.iter().zip(expected) {
        let found = store.email_tokens().find(digest).await.expect("query succeeds").expect("token exists");
        let hash = found.password_hash.as_deref();
        assert_eq!((found.kind, found.email.as_str(), found.account_id, found.browser_digest, hash), expected);
    }
    assert!(store.email_tokens().find(&random_digest()).await.expect("query succeeds").is_none());
    fixture.sql("update tickets set expires_at = now() - interval '1 second'").await;
    for digest in &digests {
        assert!(store.email_tokens().find(digest).await.expect("query succeeds").is_none());
    }
}
