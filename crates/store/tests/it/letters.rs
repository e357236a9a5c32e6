//! The queue of mails: claimed once, tried again with growing pauses, given up in the end.

use std::collections::HashSet;

use store::{Letter, LetterKind};
use tokio::task::JoinSet;

use crate::stage::{PATIENCE, Stage, digest, email, node};

async fn next(stage: &Stage) -> Option<Letter> {
    stage.store.next_letter(&digest()).await.expect("an answer")
}

async fn due_now(stage: &Stage) {
    stage.sql("update tickets set try_at = now() where mailed_at is null").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_come_oldest_first_and_say_what_the_address_needs() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    let (member, nobody) = (email(&account.email), email("nobody@house.example"));
    store.request_reset(&nobody).await.expect("a wish");
    store.request_signup(&nobody, "hash", &digest()).await.expect("a wish");
    store.request_signup(&member, "hash", &digest()).await.expect("a wish");
    store.request_reset(&email(&account.email.to_uppercase())).await.expect("a wish");
    store.request_email(account.id, &email("new@house.example")).await.expect("a wish");
    store.invite(&nobody, &digest()).await.expect("a link that an operator hands over");

    let expected = [
        (LetterKind::SignUp, "nobody@house.example".to_owned(), true),
        (LetterKind::AlreadyMember, account.email.clone(), false),
        (LetterKind::Reset, account.email.to_uppercase(), true),
        (LetterKind::NewEmail, "new@house.example".to_owned(), true),
    ];
    for expected in expected {
        let digest = digest();
        let letter = store.next_letter(&digest).await.expect("an answer").expect("a letter");
        let is_linked = store.find_ticket(&digest).await.expect("an answer").is_some();
        assert_eq!((letter.kind, letter.email, is_linked), expected);
        store.letter_sent(letter.ticket).await.expect("an answer");
    }
    assert!(next(&stage).await.is_none());
    assert_eq!(
        stage.sql("select count(*) from tickets where mailed_at is null").await,
        "0",
        "what is nobody's is done with"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_in_one_hand_at_a_time() {
    let stage = Stage::open().await;
    for number in 0..20 {
        stage
            .store
            .request_signup(&email(&format!("{number}@house.example")), "hash", &digest())
            .await
            .expect("a wish");
    }
    let mut mailers = JoinSet::new();
    for _ in 0..4 {
        let store = node(&stage.postgres, PATIENCE);
        mailers.spawn(async move {
            let mut claimed = Vec::new();
            while let Some(letter) = store.next_letter(&digest()).await.expect("an answer") {
                claimed.push(letter.ticket);
            }
            claimed
        });
    }
    let claimed: Vec<i64> = mailers.join_all().await.concat();
    assert_eq!((claimed.len(), claimed.iter().collect::<HashSet<_>>().len()), (20, 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_fails_comes_back_after_twice_the_time_with_a_new_link_eight_times() {
    let stage = Stage::open().await;
    let store = &stage.store;
    store.request_signup(&email("ada@house.example"), "hash", &digest()).await.expect("a wish");
    let mut before = digest();
    for minutes in [1, 2, 4, 8, 16, 32, 64, 128] {
        let link = digest();
        store.next_letter(&link).await.expect("an answer").expect("a letter");
        assert!(next(&stage).await.is_none(), "not before its time");
        let pause = "select round(extract(epoch from try_at - now()) / 6) from tickets";
        let (pause, minutes) = (stage.sql(pause).await.parse::<i32>().expect("a number"), minutes * 10);
        assert!((minutes - 3..=minutes).contains(&pause), "{pause}, not {minutes} tenths of a minute");
        assert!(store.find_ticket(&link).await.expect("an answer").is_some());
        assert!(store.find_ticket(&before).await.expect("an answer").is_none(), "the link before no longer holds");
        before = link;
        due_now(&stage).await;
    }
    assert!(next(&stage).await.is_none(), "given up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_up_that_became_a_member_meanwhile_loses_its_link_and_an_expired_wish_is_not_mailed() {
    let stage = Stage::open().await;
    let (store, address, link) = (&stage.store, email("ada@house.example"), digest());
    store.request_signup(&address, "hash", &digest()).await.expect("a wish");
    assert_eq!(store.next_letter(&link).await.expect("an answer").map(|letter| letter.kind), Some(LetterKind::SignUp));
    store.create_member(&address, "hash").await.expect("a member");
    due_now(&stage).await;
    assert_eq!(next(&stage).await.map(|letter| letter.kind), Some(LetterKind::AlreadyMember));
    assert!(store.find_ticket(&link).await.expect("an answer").is_none());

    stage.sql("update tickets set expires_at = now()").await;
    due_now(&stage).await;
    assert!(next(&stage).await.is_none());
}
