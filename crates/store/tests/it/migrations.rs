//! Migrations.

use std::time::Duration;

use ipseity_store::StoreError;
use ipseity_testkit::eventually;

use crate::fixture::{StoreFixture, TEST_TIMEOUT, email, open_store};

#[tokio::test(flavor = "multi_thread")]
async fn repeated_and_concurrent_migrations_are_harmless() {
    let fixture = StoreFixture::unmigrated().await;
    let unmigrated = fixture.store.check().await.expect_err("schema is missing");
    assert!(matches!(unmigrated, StoreError::Fault(_)), "{unmigrated:?}");

    let other = open_store(&fixture.postgres, TEST_TIMEOUT);
    let (one, two) = tokio::join!(fixture.store.migrate(), other.migrate());
    one.and(two).expect("concurrent migrations succeed");
    let key = fixture.create_key().await;
    fixture.store.migrate().await.expect("repeated migration succeeds");
    fixture.store.check().await.expect("schema exists");
    assert_eq!(fixture.key_record(key.id).await.daily_limit, 10_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_may_exceed_the_statement_timeout() {
    let fixture = StoreFixture::open().await;
    let short_timeout_store = open_store(&fixture.postgres, Duration::from_millis(500));
    let lock_query =
        "select count(*) from pg_locks where mode = 'AccessExclusiveLock' and relation = '_sqlx_migrations'::regclass";
    let migrated = async {
        let is_locked = async || fixture.sql(lock_query).await == "1";
        eventually("another node migrates", Duration::from_secs(10), is_locked).await.expect("table is locked");
        short_timeout_store.migrate().await
    };
    let other_migration = fixture.sql("begin; lock table _sqlx_migrations; select pg_sleep(2); commit");
    let (migrated, _) = tokio::join!(migrated, other_migration);
    migrated.expect("migration waits and succeeds");
}

/// Undoes the migration that folds email addresses, so that the next call applies it to existing rows.
const UNFOLD: &str = "drop index accounts_email_bytes, tickets_email_bytes; drop function fold_email() cascade;
                      delete from _sqlx_migrations where version = 6";

/// The reason why existing rows prevent a migration.
async fn blocked_migration(fixture: &StoreFixture) -> String {
    let error = fixture.store.migrate().await.expect_err("migration is blocked");
    let StoreError::MigrationBlocked(cause) = error else { panic!("expected blocking rows, got {error:?}") };
    cause.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_folds_email_addresses_of_accounts_and_links() {
    let fixture = StoreFixture::open().await;
    fixture.sql(UNFOLD).await;
    fixture.sql("insert into accounts (email) values ('Ada@IPSEITY.example'), ('bob+x@ipseity.example')").await;
    fixture
        .sql("insert into tickets (kind, email, expires_at) values ('reset', 'ADA@ipseity.example', now() + interval '1 hour')")
        .await;
    fixture.store.migrate().await.expect("migration succeeds");
    let emails = "select email from accounts union all select email from tickets order by 1";
    assert_eq!(fixture.sql(emails).await, "ada@ipseity.example\nada@ipseity.example\nbob+x@ipseity.example");
    fixture.store.accounts().get_by_email(&email("aDa@ipseity.example")).await.expect("account exists");

    // A node of the previous version.
    let insert = "insert into accounts (email) values ('EVE@ipseity.example') on conflict (lower(email)) do nothing";
    fixture.sql(insert).await;
    fixture.store.accounts().get_by_email(&email("eve@ipseity.example")).await.expect("account exists");
    let duplicate = fixture.sql_error("insert into accounts (email) values ('Eve@Ipseity.example')").await;
    assert!(duplicate.contains("accounts_email"), "{duplicate}");
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_stops_at_accounts_with_the_same_folded_address() {
    let fixture = StoreFixture::open().await;
    // Without the index, as in a locale in which upper and lower case of a letter differ from ASCII, such as Turkish.
    fixture.sql(&format!("{UNFOLD}; drop index accounts_email")).await;
    fixture
        .sql("insert into accounts (email) values ('kim@ipseity.example'), ('KIM@ipseity.example'), ('ada@ipseity.example')")
        .await;
    let before = fixture.sql("select id, email from accounts order by id").await;
    let reason = blocked_migration(&fixture).await;
    assert!(reason.contains("apart from upper and lower case: 1, 2. "), "{reason}");
    assert!(reason.contains("update accounts set email") && reason.contains("ipseity migrate"), "{reason}");
    assert_eq!(fixture.sql("select id, email from accounts order by id").await, before, "nothing is changed or merged");
    assert!(!fixture.postgres.log().expect("log is readable").contains("@ipseity.example"), "an address is in the log");

    fixture.sql("update accounts set email = 'KIM2@ipseity.example' where id = 2").await;
    fixture.store.migrate().await.expect("migration succeeds");
    assert_eq!(
        fixture.sql("select email from accounts order by id").await,
        "kim@ipseity.example\nkim2@ipseity.example\nada@ipseity.example"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_stops_at_addresses_that_are_no_longer_accepted() {
    let fixture = StoreFixture::open().await;
    fixture.sql(UNFOLD).await;
    let rejected = [
        "ad\u{e4}@ipseity.example",
        "ada@ips\u{130}ity.example",
        "Prize<ada@ipseity.example>",
        "\"ada\"@ipseity.example",
        "ada(comment)@ipseity.example",
        "ada..b@ipseity.example",
        "ada@ipseity.example.",
        "ada@-ipseity.example",
        "ada@[192.0.2.1]",
    ];
    fixture.sql("insert into accounts (email) values ('!#$%&''*+-/=?^_`{|}~.a@xn--bcher-kva.example')").await;
    for address in rejected {
        fixture.sql(&format!("insert into accounts (email) values ('{address}')")).await;
    }
    let reason = blocked_migration(&fixture).await;
    assert!(reason.contains("no longer accepted: 2, 3, 4, 5, 6, 7, 8, 9, 10. "), "{reason}");
    fixture.sql("delete from accounts where id > 1").await;
    fixture.store.migrate().await.expect("migration succeeds");
}
