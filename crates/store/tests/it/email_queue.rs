//! The email queue: exclusive claims, retries with growing delays, and a maximum number of attempts.

use std::collections::HashSet;

use ipseity_store::{QueuedEmail, QueuedEmailKind, StoreRefusal};
use tokio::task::JoinSet;

use crate::fixture::{
    EMAILS_PER_HOUR_MAX, StoreFixture, TEST_TIMEOUT, email, expect_refusal, open_store, random_digest,
};

async fn claim_next(fixture: &StoreFixture) -> Option<QueuedEmail> {
    fixture.store.email_queue().claim_next(&random_digest()).await.expect("claim succeeds")
}

async fn make_due(fixture: &StoreFixture) {
    fixture.sql("update tickets set try_at = now() where mailed_at is null").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn emails_are_claimed_oldest_first_with_matching_kind() {
    let fixture = StoreFixture::open().await;
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let (registered, unregistered) = (email(&account.email), email("unknown@ipseity.example"));
    store.email_requests(EMAILS_PER_HOUR_MAX).request_password_reset(&unregistered).await.expect("request is stored");
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_signup(&unregistered, "hash", &random_digest())
        .await
        .expect("request is stored");
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_signup(&registered, "hash", &random_digest())
        .await
        .expect("request is stored");
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_password_reset(&email(&account.email.to_uppercase()))
        .await
        .expect("request is stored");
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_email_change(account.id, &email("new@ipseity.example"))
        .await
        .expect("request is stored");
    store.email_tokens().create_invite(&unregistered, &random_digest()).await.expect("invitation is created");

    let expected = [
        (QueuedEmailKind::ConfirmSignUp, "unknown@ipseity.example".to_owned(), true),
        (QueuedEmailKind::AlreadyRegistered, account.email.clone(), false),
        (QueuedEmailKind::PasswordReset, account.email.clone(), true),
        (QueuedEmailKind::ConfirmEmailChange, "new@ipseity.example".to_owned(), true),
    ];
    for expected in expected {
        let digest = random_digest();
        let queued = store.email_queue().claim_next(&digest).await.expect("claim succeeds").expect("an email is due");
        let is_linked = store.email_tokens().find(&digest).await.expect("query succeeds").is_some();
        assert_eq!((queued.kind, queued.email, is_linked), expected);
        store.email_queue().mark_sent(queued.token_id).await.expect("row is marked");
    }
    assert!(claim_next(&fixture).await.is_none());
    assert_eq!(
        fixture.sql("select count(*) from tickets where mailed_at is null").await,
        "0",
        "a reset for an unknown address counts as sent"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_email_is_claimed_by_one_worker_at_a_time() {
    let fixture = StoreFixture::open().await;
    for number in 0..20 {
        fixture
            .store
            .email_requests(EMAILS_PER_HOUR_MAX)
            .request_signup(&email(&format!("{number}@ipseity.example")), "hash", &random_digest())
            .await
            .expect("request is stored");
    }
    let mut mailers = JoinSet::new();
    for _ in 0..4 {
        let store = open_store(&fixture.postgres, TEST_TIMEOUT);
        mailers.spawn(async move {
            let mut claimed = Vec::new();
            while let Some(queued) = store.email_queue().claim_next(&random_digest()).await.expect("claim succeeds") {
                claimed.push(queued.token_id);
            }
            claimed
        });
    }
    let claimed: Vec<i64> = mailers.join_all().await.concat();
    assert_eq!((claimed.len(), claimed.iter().collect::<HashSet<_>>().len()), (20, 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_email_retries_eight_times_with_backoff_and_new_link() {
    let fixture = StoreFixture::open().await;
    let store = &fixture.store;
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_signup(&email("ada@ipseity.example"), "hash", &random_digest())
        .await
        .expect("request is stored");
    let mut previous_link = random_digest();
    for minutes in [1, 2, 4, 8, 16, 32, 64, 128] {
        let link = random_digest();
        store.email_queue().claim_next(&link).await.expect("claim succeeds").expect("an email is due");
        assert!(claim_next(&fixture).await.is_none(), "not due yet");
        let delay = "select round(extract(epoch from try_at - now()) / 6) from tickets";
        let (delay, minutes) = (fixture.sql(delay).await.parse::<i32>().expect("number parses"), minutes * 10);
        assert!((minutes - 3..=minutes).contains(&delay), "the delay is {delay} and not {minutes} tenths of a minute");
        assert!(store.email_tokens().find(&link).await.expect("query succeeds").is_some());
        assert!(
            store.email_tokens().find(&previous_link).await.expect("query succeeds").is_none(),
            "the previous link is invalid"
        );
        previous_link = link;
        make_due(&fixture).await;
    }
    assert!(claim_next(&fixture).await.is_none(), "no attempts are left");
}

#[tokio::test(flavor = "multi_thread")]
async fn registered_sign_up_loses_its_link_and_expired_is_not_sent() {
    let fixture = StoreFixture::open().await;
    let (store, address, link) = (&fixture.store, email("ada@ipseity.example"), random_digest());
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_signup(&address, "hash", &random_digest())
        .await
        .expect("request is stored");
    assert_eq!(
        store.email_queue().claim_next(&link).await.expect("claim succeeds").map(|queued| queued.kind),
        Some(QueuedEmailKind::ConfirmSignUp)
    );
    store.accounts().create_with_password(&address, "hash").await.expect("account is created");
    make_due(&fixture).await;
    assert_eq!(claim_next(&fixture).await.map(|queued| queued.kind), Some(QueuedEmailKind::AlreadyRegistered));
    assert!(store.email_tokens().find(&link).await.expect("query succeeds").is_none());

    fixture.sql("update tickets set expires_at = now()").await;
    make_due(&fixture).await;
    assert!(claim_next(&fixture).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn look_alike_of_an_address_reaches_no_account() {
    let fixture = StoreFixture::open().await;
    assert_eq!(fixture.sql("select lower(U&'d\\0130vine \\212A')").await, "divine k", "the locale folds other letters");
    let account =
        fixture.store.accounts().create(&email("kim@divine.example"), "free").await.expect("account is created");
    // As nodes of an older version write them.
    for (kind, typed) in [("reset", "kim@d\u{130}vine.example"), ("reset", "\u{212a}im@divine.example")] {
        fixture
            .sql(&format!(
                "insert into tickets (kind, email, expires_at) values ('{kind}', '{typed}', now() + interval '1 hour')"
            ))
            .await;
    }
    assert!(claim_next(&fixture).await.is_none(), "no account has these addresses");
    let (link, upper_case_link) = (random_digest(), random_digest());
    let insert_link = |typed: &str, digest: &[u8; 32]| {
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "insert into tickets (kind, email, digest, expires_at, mailed_at)
             values ('reset', '{typed}', '\\x{digest}', now() + interval '1 hour', now())"
        )
    };
    fixture.sql(&insert_link("kim@d\u{130}vine.example", &link)).await;
    assert_eq!(
        expect_refusal(fixture.store.email_tokens().redeem_password(&link, "x").await),
        StoreRefusal::InvalidEmailToken
    );
    fixture.sql(&insert_link("KIM@Divine.example", &upper_case_link)).await;
    let changed = fixture.store.email_tokens().redeem_password(&upper_case_link, "new").await;
    assert_eq!(changed.expect("password is set"), account.id, "rows of nodes of the previous version are folded");
}
