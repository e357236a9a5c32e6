//! Search and counts for operators.

use ipseity_domain::account::KeyName;
use ipseity_domain::{KeyState, Restrictions, Scope};
use ipseity_store::{Account, Actor, ApproximateCount};

use crate::fixture::{StoreFixture, email, generate_key, key_name, pause, random_digest};

async fn found_emails(fixture: &StoreFixture, text: &str) -> Vec<String> {
    let found = fixture.store.console().search_accounts(text, 10).await.expect("search succeeds");
    found.into_iter().map(|account| account.email).collect()
}

async fn create_account(fixture: &StoreFixture, address: &str) -> Account {
    fixture.store.accounts().create(&email(address), "free").await.expect("account is created")
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_are_found_by_number_start_of_the_address_and_domain() {
    let fixture = StoreFixture::open().await;
    let [ada, adam, percent, number, elsewhere] = [
        "ada@ipseity.example",
        "adam@ipseity.example",
        "a%_@mail.example",
        "1@mail.example",
        "x@xn--bcher-kva.example",
    ];
    for address in [ada, adam, percent, number, elsewhere] {
        create_account(&fixture, address).await;
    }
    for (text, expected) in [
        ("ada", &[ada, adam][..]),
        (" ADA@", &[ada]),
        ("ada@ipseity.example", &[ada]),
        ("@ipseity.example", &[adam, ada]),
        ("@IPSEITY.example", &[adam, ada]),
        ("@b\u{fc}cher.example", &[elsewhere]),
        ("@ipseity", &[]),
        ("@", &[]),
        ("%", &[]),
        ("a_a", &[]),
        ("a%", &[percent]),
        ("a%_", &[percent]),
        ("a\\", &[]),
        ("'", &[]),
        ("1", &[ada, number]),
        ("4", &[number]),
        ("99999999999999999999", &[]),
        ("", &[]),
    ] {
        assert_eq!(found_emails(&fixture, text).await, expected, "{text:?}");
    }
    assert_eq!(fixture.store.console().search_accounts("a", 1).await.expect("search succeeds").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_found_by_id_and_start_of_the_name() {
    let fixture = StoreFixture::open().await;
    let account = fixture.create_account().await;
    let mut ids = Vec::new();
    for name in ["Shop", "shop \u{c4}pfel", "100% shop", "100 shops", "%"] {
        let (key, name): (_, KeyName) = (generate_key(), key_name(name));
        let (keys, actor) = (fixture.store.keys(), Actor::Owner(account.id));
        keys.create(&account, actor, &name, Scope::Geo, &key, &Restrictions::default()).await.expect("key is created");
        ids.push(key.id);
    }
    let id = ids[0].to_string();
    for (text, expected) in [
        (id.as_str(), &["Shop"][..]),
        (&format!("ips_{id}"), &["Shop"]),
        ("SHOP", &["Shop", "shop \u{c4}pfel"]),
        ("shop \u{e4}P", &["shop \u{c4}pfel"]),
        ("100%", &["100% shop"]),
        ("%", &["%"]),
        ("_hop", &[]),
        ("hop", &[]),
        ("", &[]),
    ] {
        let found = fixture.store.console().search_keys(text, 10).await.expect("search succeeds");
        let names: Vec<_> = found.iter().map(|key| key.name.as_str()).collect();
        assert_eq!(names, expected, "{text:?}");
        assert!(found.iter().all(|key| key.email == account.email && key.account_id == account.id));
    }

    fixture.sql(&format!("update keys set expires_at = now() - interval '1 second' where id = '{}'", ids[1])).await;
    fixture.store.keys().record_pause(&pause(ids[0], 1)).await.expect("pause is recorded");
    let found = fixture.store.console().search_keys("shop", 10).await.expect("search succeeds");
    let states: Vec<_> = found.iter().map(|key| (key.state, key.is_expired)).collect();
    assert_eq!(states, [(KeyState::Paused, false), (KeyState::Active, true)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn overview_counts_what_exists_and_what_waits() {
    let fixture = StoreFixture::open().await;
    let store = &fixture.store;
    let keys = [fixture.create_key().await.id, fixture.create_key().await.id, fixture.create_key().await.id];
    for key in &keys[..2] {
        store.keys().record_pause(&pause(*key, 1)).await.expect("pause is recorded");
    }
    store.keys().deactivate(Actor::Operator, keys[1]).await.expect("key is deactivated");
    fixture
        .sql(
            "update accounts set created_at = now() - interval '8 days' where id = 1;
             update accounts set created_at = now() - interval '6 days' where id = 2;
             insert into limit_requests (account_id, daily_limit, message) values (1, 20000, '');
             update notices set failed_at = now() where id = (select min(id) from notices where kind = 'alert_paused');
             delete from notices where kind <> 'alert_paused';
             insert into tickets (kind, email, expires_at) values ('reset', 'a@ipseity.example', now() + interval '1 hour'),
                 ('reset', 'a@ipseity.example', now())",
        )
        .await;
    let overview = store.console().overview().await.expect("overview is read");
    let exact = |count| ApproximateCount { count, is_exact: true };
    assert_eq!((overview.accounts, overview.keys), (exact(3), exact(3)));
    assert_eq!((overview.paused_keys, overview.deactivated_keys), (exact(1), exact(1)));
    assert_eq!((overview.sign_ups_today, overview.sign_ups_7_days), (1, 2));
    assert_eq!((overview.open_limit_requests, overview.outbox_rows), (1, 3));
    assert_eq!((overview.queued_emails, overview.failed_emails), (2, 1));

    // Estimates of PostgreSQL, as after it analyzed large tables.
    fixture.sql("update pg_class set reltuples = 12345.6 where relname in ('keys', 'keys_paused')").await;
    let overview = store.console().overview().await.expect("overview is read");
    let estimate = ApproximateCount { count: 12_346, is_exact: false };
    assert_eq!((overview.keys, overview.paused_keys, overview.accounts), (estimate, estimate, exact(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_ups_are_counted_per_day_and_listed_in_pages() {
    let fixture = StoreFixture::open().await;
    for _ in 0..5 {
        fixture.create_account().await;
    }
    fixture
        .sql(
            "update accounts set created_at = date_trunc('day', now(), 'UTC') - interval '1 second' where id = 1;
             update accounts set created_at = date_trunc('day', now(), 'UTC') - interval '3 days' where id = 2",
        )
        .await;
    let console = fixture.store.console();
    let sign_ups = console.sign_ups(4).await.expect("sign-ups are counted");
    assert_eq!(sign_ups.iter().map(|day| day.count).collect::<Vec<_>>(), [3, 1, 0, 1]);
    assert_eq!(sign_ups[0].day, fixture.sql("select (now() at time zone 'UTC')::date").await);

    let page = console.newest_accounts(None, 2).await.expect("accounts are listed");
    assert_eq!(page.iter().map(|account| account.id).collect::<Vec<_>>(), [5, 4]);
    let page = console.newest_accounts(Some(4), 2).await.expect("accounts are listed");
    assert_eq!(page.iter().map(|account| (account.id, account.key_count)).collect::<Vec<_>>(), [(3, 0), (2, 0)]);

    let tokens = fixture.store.email_tokens();
    tokens.create_invite(&email("new@ipseity.example"), &random_digest()).await.expect("invitation is created");
    tokens.create_invite(&email("old@ipseity.example"), &random_digest()).await.expect("invitation is created");
    fixture.sql("update tickets set expires_at = now() where email like 'old%'").await;
    assert_eq!(console.open_invitations().await.expect("invitations are counted"), 1);
}
