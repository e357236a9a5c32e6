//! Personal tokens: secrets, limits, and what the audit log says about changes with one.

use std::sync::Arc;

use ipseity_domain::{PersonalToken, PlaintextToken, TokenName, TokenScope};
use ipseity_store::{Account, Actor, NewToken, Store, StoreError, StoreOptions, StoreRefusal};

use crate::fixture::{DATABASE, StoreFixture, TEST_TIMEOUT, key_name, random_digest};

fn generate_token() -> PersonalToken {
    PlaintextToken::generate(|| fastrand::u8(..)).to_personal_token()
}

async fn create(store: &Store, account: &Account, session: i64, tokens_max: u32) -> Result<PersonalToken, StoreError> {
    let (token, name) = (generate_token(), TokenName::parse("robot").expect("name is valid"));
    let new = NewToken { name: &name, token: &token, scopes: &[TokenScope::KeysWrite], lifetime_days: Some(30) };
    store.personal_tokens().create(account.id, session, &new, tokens_max).await.map(|()| token)
}

#[tokio::test(flavor = "multi_thread")]
async fn token_authenticates_by_id_and_secret_until_it_is_revoked() {
    let fixture = StoreFixture::open().await;
    let (account, other) = (fixture.create_account().await, fixture.create_account().await);
    let session = fixture.open_session_for(&account, random_digest()).await;
    let token = create(&fixture.store, &account, session, 10).await.expect("token is created");
    let tokens = fixture.store.personal_tokens();
    let found = tokens.authenticate(&token).await.expect("query succeeds").expect("token exists");
    assert_eq!(
        (found.account.id, &found.scopes[..], found.is_expired),
        (account.id, &[TokenScope::KeysWrite][..], false)
    );
    assert!(found.is_use_stale && !found.may_resume);
    let guess = PersonalToken { digest: generate_token().digest, ..token };
    assert!(tokens.authenticate(&guess).await.expect("query succeeds").is_none());
    tokens.record_use(token.id).await.expect("use is recorded");
    assert!(!tokens.authenticate(&token).await.expect("query succeeds").expect("token exists").is_use_stale);
    fixture.sql("update personal_tokens set expires_at = now()").await;
    assert!(tokens.authenticate(&token).await.expect("query succeeds").expect("token exists").is_expired);
    let foreign = tokens.revoke(other.id, token.id).await;
    assert!(matches!(foreign, Err(StoreError::Refused(StoreRefusal::UnknownToken))));
    tokens.revoke(account.id, token.id).await.expect("token is revoked");
    assert!(tokens.authenticate(&token).await.expect("query succeeds").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_forms_create_no_token_above_the_limit_or_after_the_session() {
    let fixture = Arc::new(StoreFixture::open().await);
    let account = fixture.create_account().await;
    let session = fixture.open_session_for(&account, random_digest()).await;
    let creations = (0..8).map(|_| {
        let (fixture, account) = (Arc::clone(&fixture), account.clone());
        tokio::spawn(async move { create(&fixture.store, &account, session, 3).await.is_ok() })
    });
    let mut created = 0;
    for creation in creations.collect::<Vec<_>>() {
        created += u32::from(creation.await.expect("task ends"));
    }
    assert_eq!(created, 3);
    fixture.sql("delete from sessions").await;
    let ended = create(&fixture.store, &account, session, 10).await;
    assert!(matches!(ended, Err(StoreError::Refused(StoreRefusal::SessionEnded))));
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_log_names_the_token_of_an_owner_only() {
    let fixture = StoreFixture::open().await;
    let account = fixture.create_account().await;
    let session = fixture.open_session_for(&account, random_digest()).await;
    let token = create(&fixture.store, &account, session, 10).await.expect("token is created");
    let key = fixture.create_key_for(&account).await;
    let options = StoreOptions {
        url: fixture.postgres.url(DATABASE),
        application_name: "ipseity-portal",
        operator: None,
        token: None,
        connections_max: 2,
        timeout: TEST_TIMEOUT,
    };
    let portal = Store::new(&options).expect("options are valid");
    let with_token = portal.for_token(token.id).expect("options are valid");
    for (store, actor) in
        [(&portal, Actor::Owner(account.id)), (&with_token, Actor::Owner(account.id)), (&with_token, Actor::Operator)]
    {
        let name = key_name(&format!("{:x}", fastrand::u64(..)));
        store.keys().rename(actor, key.id, &name).await.expect("key is renamed");
    }
    let events = "select actor, token from audit_events where action = 'renamed' order by id";
    assert_eq!(fixture.sql(events).await, "owner|\nowner|robot\noperator|");
    // As if the change waited while the owner revoked the token.
    portal.personal_tokens().revoke(account.id, token.id).await.expect("token is revoked");
    let late = with_token.keys().rename(Actor::Owner(account.id), key.id, &key_name("late")).await;
    assert!(matches!(late, Err(StoreError::Refused(StoreRefusal::UnknownToken))), "{late:?}");
    assert_eq!(fixture.sql("select count(*) from keys where name = 'late'").await, "0");
    create(&fixture.store, &account, session, 10).await.expect("token is created");
    portal.personal_tokens().set_may_resume(account.id, true).await.expect("setting is saved");
    portal.personal_tokens().set_may_resume(account.id, true).await.expect("setting is saved");
    let changes = "select count(*) from audit_events where action = 'token_resume_allowed'";
    assert_eq!(fixture.sql(changes).await, "1");
    assert_eq!(fixture.sql("select count(*) from security_events where kind = 'token_resume'").await, "1");
    fixture.sql(&format!("delete from accounts where id = {}", account.id)).await;
    assert_eq!(fixture.sql("select count(*) from personal_tokens").await, "0");
}
