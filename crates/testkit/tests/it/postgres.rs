use testkit::{Postgres, PostgresOptions};

#[tokio::test]
async fn what_was_committed_survives_a_kill_and_a_stop() {
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
async fn a_frozen_server_answers_once_it_is_thawed() {
    let mut postgres =
        Postgres::start(PostgresOptions { fsync: true, ..PostgresOptions::default() }).await.expect("a cluster");
    assert_eq!(postgres.psql("postgres", "show fsync").await.expect("a setting"), "on");
    postgres.freeze();
    let patience = std::time::Duration::from_millis(300);
    assert!(tokio::time::timeout(patience, postgres.psql("postgres", "select 1")).await.is_err());
    postgres.thaw();
    assert_eq!(postgres.psql("postgres", "select 1").await.expect("a row"), "1");
}

#[tokio::test]
async fn a_server_that_is_dropped_leaves_neither_files_nor_processes() {
    let mut postgres = Postgres::start(PostgresOptions::default()).await.expect("a cluster");
    let data = postgres.data();
    postgres.freeze();
    drop(postgres);
    assert!(!data.exists());
    let marker = data.display().to_string();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&command).contains(&marker), "left: {}", entry.path().display());
    }
}
