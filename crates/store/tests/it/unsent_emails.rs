//! Emails that are not sent yet, as operators see them.

use std::time::Instant;

use ipseity_store::{AlertClaim, UnsentEmailState, UnsentQueue, WakeListener};

use crate::fixture::{EMAILS_PER_HOUR_MAX, StoreFixture, TEST_TIMEOUT, email, pause, random_digest};

/// One email of each queue, without an attempt.
async fn queue_emails(fixture: &StoreFixture) {
    let store = &fixture.store;
    let address = email("new@ipseity.example");
    let requests = store.email_requests(EMAILS_PER_HOUR_MAX);
    requests.request_signup(&address, "a password hash", &random_digest()).await.expect("request is stored");
    let account = fixture.create_account().await;
    let key = fixture.create_key_for(&account).await.id;
    fixture.add_passkey(&account, b"credential").await;
    fixture.sql("delete from notices where kind <> 'passkey'").await;
    store.keys().record_pause(&pause(key, 1)).await.expect("pause is recorded");
}

#[tokio::test(flavor = "multi_thread")]
async fn unsent_emails_of_all_queues_are_listed_with_their_state() {
    let fixture = StoreFixture::open().await;
    queue_emails(&fixture).await;
    let console = fixture.store.console();
    let listed = console.unsent_emails(10).await.expect("emails are listed");
    let mut kinds: Vec<_> = listed.iter().map(|email| (email.queue.name(), email.kind.as_str())).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [("links", "signup"), ("notices", "alert_paused"), ("notices", "passkey")]);
    assert!(listed.iter().all(|email| email.state == UnsentEmailState::Queued && email.attempts == 0));
    assert!(listed.iter().all(|email| email.next_attempt_s.is_some() && email.email.ends_with("@ipseity.example")));
    assert!(!format!("{listed:?}").contains("password hash"));

    fixture
        .sql("update tickets set expires_at = now(); update notices set failed_at = now() where kind = 'alert_paused'")
        .await;
    for email in console.unsent_emails(10).await.expect("emails are listed") {
        let state = match email.queue {
            UnsentQueue::Links => UnsentEmailState::Expired,
            UnsentQueue::Notices if email.kind == "alert_paused" => UnsentEmailState::Failed,
            UnsentQueue::Notices => UnsentEmailState::Queued,
        };
        assert_eq!((email.state, email.next_attempt_s.is_some()), (state, state == UnsentEmailState::Queued));
    }
    assert_eq!(console.unsent_emails(1).await.expect("emails are listed").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn retried_emails_are_due_with_all_attempts_and_wake_the_sender() {
    let fixture = StoreFixture::open().await;
    let store = fixture.node_store().await;
    queue_emails(&fixture).await;
    let later = "set tries = 8, try_at = now() + interval '2 hours'";
    fixture.sql(&format!("update tickets {later}; update notices {later}")).await;
    let mut listener: WakeListener = store.email_queue().listen().await.expect("listener is open");
    for email in store.console().unsent_emails(10).await.expect("emails are listed") {
        assert!(store.console().retry_email(email.queue, &email.id).await.expect("retry succeeds"), "{email:?}");
        let started = Instant::now();
        listener.wait(TEST_TIMEOUT).await.expect("listener works");
        assert!(started.elapsed() < TEST_TIMEOUT, "the sender is not notified");
    }
    let listed = store.console().unsent_emails(10).await.expect("emails are listed");
    assert!(listed.iter().all(|email| email.state == UnsentEmailState::Queued && email.attempts == 0));
    let queued =
        store.email_queue().claim_next(&random_digest()).await.expect("claim succeeds").expect("an email is due");
    store.email_queue().mark_sent(queued.token_id).await.expect("row is marked");
    assert!(store.notice_queue().claim_next(&random_digest()).await.expect("claim succeeds").is_some());
    assert_eq!(store.alert_queue().claim(AlertClaim::Email).await.expect("claim succeeds").len(), 1);

    let sent = queued.token_id.to_string();
    for (queue, id) in [
        (UnsentQueue::Links, sent.as_str()),
        (UnsentQueue::Links, "0"),
        (UnsentQueue::Links, "x' or true --"),
        (UnsentQueue::Notices, "99"),
        (UnsentQueue::Notices, ""),
    ] {
        assert!(!store.console().retry_email(queue, id).await.expect("retry is answered"), "{id:?}");
    }
    fixture.sql("update tickets set mailed_at = null, expires_at = now()").await;
    assert!(!store.console().retry_email(UnsentQueue::Links, &sent).await.expect("retry is answered"), "expired");
}
