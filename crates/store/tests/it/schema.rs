//! Migrations.

use std::time::Duration;

use store::StoreError;
use testkit::eventually;

use crate::stage::{PATIENCE, Stage, node};

#[tokio::test(flavor = "multi_thread")]
async fn migrations_run_twice_and_from_two_nodes_at_once_harmlessly() {
    let stage = Stage::unmigrated().await;
    let unmigrated = stage.store.check().await.expect_err("no schema");
    assert!(matches!(unmigrated, StoreError::Fault(_)), "{unmigrated:?}");

    let other = node(&stage.postgres, PATIENCE);
    let (one, two) = tokio::join!(stage.store.migrate(), other.migrate());
    one.and(two).expect("two migrations at once");
    let key = stage.key().await;
    stage.store.migrate().await.expect("a second migration");
    stage.store.check().await.expect("a schema");
    assert_eq!(stage.standing(key.id).await.daily_limit, 10_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_may_outlast_the_time_for_a_statement() {
    let stage = Stage::open().await;
    let hasty = node(&stage.postgres, Duration::from_millis(500));
    let held =
        "select count(*) from pg_locks where mode = 'AccessExclusiveLock' and relation = '_sqlx_migrations'::regclass";
    let migrated = async {
        let is_held = async || stage.sql(held).await == "1";
        eventually("another node migrates", Duration::from_secs(10), is_held).await.expect("a lock");
        hasty.migrate().await
    };
    let another = stage.sql("begin; lock table _sqlx_migrations; select pg_sleep(2); commit");
    let (migrated, _) = tokio::join!(migrated, another);
    migrated.expect("a migration that waited");
}
