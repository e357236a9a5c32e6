use ipseity_testkit::{Postgres, PostgresOptions};

#[tokio::test]
async fn committed_rows_survive_a_kill_and_a_stop() {
    let mut postgres = Postgres::start(PostgresOptions::default()).await.expect("a cluster");
    let url = postgres.create_database("house").await.expect("a database");
    assert_eq!(url, postgres.url("house"));
    postgres.psql("house", "create table t (n int); insert into t values (41)").await.expect("a table");

    postgres.kill9();
    assert!(postgres.psql("house", "select 1").await.is_err(), "a killed server answered");
    postgres.restart().await.expect("a server that comes back");
    assert_eq!(postgres.psql("house", "update t set n = 42 returning n").await.expect("a row"), "42");

    postgres.stop().await.expect("a server that stops");
    postgres.restart().await.expect("a server that comes back");
    assert_eq!(postgres.psql("house", "select n from t").await.expect("a row"), "42");
    assert!(String::from_utf8_lossy(&postgres.dump("house").await.expect("a dump")).contains("42"));
    assert!(postgres.log().expect("a log").contains("was not properly shut down"));
}

#[tokio::test]
async fn frozen_postgres_answers_after_thaw() {
    let mut postgres =
        Postgres::start(PostgresOptions { fsync: true, ..PostgresOptions::default() }).await.expect("a cluster");
    assert_eq!(postgres.psql("postgres", "show fsync").await.expect("a setting"), "on");
    postgres.freeze();
    let max_wait = std::time::Duration::from_millis(300);
    assert!(tokio::time::timeout(max_wait, postgres.psql("postgres", "select 1")).await.is_err());
    postgres.thaw();
    assert_eq!(postgres.psql("postgres", "select 1").await.expect("a row"), "1");
}

#[tokio::test]
async fn dropped_postgres_leaves_no_files_or_processes() {
    let mut postgres = Postgres::start(PostgresOptions::default()).await.expect("a cluster");
    let data = postgres.data_dir();
    postgres.freeze();
    drop(postgres);
    assert!(!data.exists());
    let marker = data.display().to_string();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&command).contains(&marker), "left: {}", entry.path().display());
    }
}
