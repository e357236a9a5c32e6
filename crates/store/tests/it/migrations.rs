//! Migrations.

use std::time::Duration;

use ipseity_store::StoreError;
use ipseity_testkit::eventually;

use crate::fixture::{StoreFixture, TEST_TIMEOUT, open_store};

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
