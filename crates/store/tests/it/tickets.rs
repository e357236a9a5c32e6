//! Wishes for a mail: what they leave behind, and how few of them count.

use store::{Account, TicketKind};
use tokio::task::JoinSet;

use crate::stage::{Stage, digest, email};

/// All tickets without their times, oldest first.
async fn tickets(stage: &Stage) -> Vec<String> {
    let rows = "select concat_ws(' ', kind, email, account_id, password_hash, encode(visit, 'hex'),
                       round(extract(epoch from expires_at - created_at) / 3600), mailed_at is not null, digest is null)
                from tickets order by id";
    stage.sql(rows).await.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_leaves_the_same_whether_an_account_exists_or_not() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    let (member, nobody) = (email(&account.email), email("nobody@house.example"));
    for address in [&member, &nobody] {
        store.request_signup(address, "hash", &[7; 32]).await.expect("a wish");
        store.request_reset(address).await.expect("a wish");
        store.request_email(account.id, address).await.expect("a wish");
    }
    let visit = "07".repeat(32);
    let of = |address: &str, email_hours| {
        [
            format!("signup {address} hash {visit} 24 f t"),
            format!("reset {address} 1 f t"),
            format!("email {address} {} {email_hours} f t", account.id),
        ]
    };
    let expected = [of(member.as_str(), 0), of(nobody.as_str(), 24)].concat();
    assert_eq!(tickets(&stage).await, expected, "and of an account's wishes for an address only the last one holds");

    store.request_email(0, &nobody).await.expect("a wish of an account that is gone");
    assert_eq!(tickets(&stage).await.len(), 6);
    store.invite(&nobody, &digest()).await.expect("a link");
    assert_eq!(tickets(&stage).await[6], "invite nobody@house.example 168 t f");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_gets_five_mails_of_a_kind_in_an_hour_whoever_races() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    let flooded = email("flooded@house.example");
    let mut race = JoinSet::new();
    for number in 0..30 {
        let store = stage.store.clone();
        let address = email(if number % 2 == 0 { "flooded@house.example" } else { "Flooded@House.example" });
        race.spawn(async move { store.request_reset(&address).await });
    }
    race.join_all().await.into_iter().collect::<Result<(), _>>().expect("no refusal");
    let count = async |kind: &str| stage.sql(&format!("select count(*) from tickets where kind = '{kind}'")).await;
    assert_eq!(count("reset").await, "5");

    // A stranger's wishes of another kind, or for another address, leave an owner's reset alone.
    for _ in 0..7 {
        store.request_signup(&flooded, "hash", &digest()).await.expect("a wish");
        store.request_email(account.id, &flooded).await.expect("a wish");
    }
    assert_eq!((count("signup").await.as_str(), count("email").await.as_str()), ("5", "5"));
    let valid = "select count(*) from tickets where kind = 'email' and expires_at > now()";
    assert_eq!(stage.sql(valid).await, "1", "a wish that is dropped leaves the last link as it is");
    store.request_reset(&email("calm@house.example")).await.expect("a wish");
    assert_eq!(count("reset").await, "6");

    stage.sql("update tickets set created_at = now() - interval '61 minutes'").await;
    store.request_reset(&flooded).await.expect("a wish");
    assert_eq!(count("reset").await, "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn mails_that_were_sent_count_and_reach_the_same_bound_for_members_and_others() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    for address in [email(&account.email), email("nobody@house.example")] {
        for _ in 0..8 {
            store.request_signup(&address, "hash", &digest()).await.expect("a wish");
            store.request_reset(&address).await.expect("a wish");
            while let Some(letter) = store.next_letter(&digest()).await.expect("an answer") {
                store.letter_sent(letter.ticket).await.expect("an answer");
            }
        }
        let counts = format!("select count(*) from tickets where email = '{address}' group by kind");
        assert_eq!(stage.sql(&counts).await, "5\n5");
    }
    let unlinked = "select count(*) from tickets where digest is null and password_hash is not null";
    assert_eq!(stage.sql(unlinked).await, "0", "no hash is kept that no link can use");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_is_found_by_its_digest_until_it_expires() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    let Account { id, email: own, .. } = &account;
    store.request_signup(&email("ada@house.example"), "hash", &[7; 32]).await.expect("a wish");
    store.request_reset(&email(own)).await.expect("a wish");
    store.request_email(*id, &email("new@house.example")).await.expect("a wish");
    let digests = [digest(), digest(), digest(), digest()];
    for digest in &digests[..3] {
        store.next_letter(digest).await.expect("an answer").expect("a letter");
    }
    store.invite(&email("eve@house.example"), &digests[3]).await.expect("a link");

    let expected = [
        (TicketKind::SignUp, "ada@house.example", None, Some([7; 32]), Some("hash")),
        (TicketKind::Reset, own.as_str(), None, None, None),
        (TicketKind::NewEmail, "new@house.example", Some(*id), None, None),
        (TicketKind::Invite, "eve@house.example", None, None, None),
    ];
    for (digest, expected) in digests.iter().zip(expected) {
        let found = store.find_ticket(digest).await.expect("an answer").expect("a ticket");
        let hash = found.password_hash.as_deref();
        assert_eq!((found.kind, found.email.as_str(), found.account_id, found.visit, hash), expected);
    }
    assert!(store.find_ticket(&digest()).await.expect("an answer").is_none());
    stage.sql("update tickets set expires_at = now() - interval '1 second'").await;
    for digest in &digests {
        assert!(store.find_ticket(digest).await.expect("an answer").is_none());
    }
}
