use ipseity_testkit::{FaultConfig, FaultProxy, Postgres, PostgresOptions};

#[tokio::test]
async fn committed_rows_survive_a_kill_and_a_stop() {
    let mut postgres = Postgres::start(PostgresOptions::default()).await.expect("PostgreSQL starts");
    let url = postgres.create_database("test").await.expect("create a database");
    assert_eq!(url, postgres.url("test"));
    postgres.psql("test", "create table t (n int); insert into t values (41)").await.expect("create a table");

    postgres.kill9();
    assert!(postgres.psql("test", "select 1").await.is_err(), "a killed server responded");
    postgres.restart().await.expect("server restarts");
    assert_eq!(postgres.psql("test", "update t set n = 42 returning n").await.expect("query returns a row"), "42");

    postgres.stop().await.expect("server stops");
    postgres.restart().await.expect("server restarts");
    assert_eq!(postgres.psql("test", "select n from t").await.expect("query returns a row"), "42");
    assert!(String::from_utf8_lossy(&postgres.dump("test").await.expect("dump the data")).contains("42"));
    assert!(postgres.log().expect("read the log").contains("was not properly shut down"));
}

#[tokio::test]
async fn frozen_postgres_responds_after_thaw() {
    let mut postgres = Postgres::start(PostgresOptions { fsync: true, ..PostgresOptions::default() })
        .await
        .expect("PostgreSQL starts");
    assert_eq!(postgres.psql("postgres", "show fsync").await.expect("read the setting"), "on");
    postgres.freeze();
    let max_wait = std::time::Duration::from_millis(300);
    assert!(tokio::time::timeout(max_wait, postgres.psql("postgres", "select 1")).await.is_err());
    postgres.thaw();
    assert_eq!(postgres.psql("postgres", "select 1").await.expect("query returns a row"), "1");
}

#[tokio::test]
async fn dropped_postgres_leaves_no_files_or_processes() {
    let mut postgres = Postgres::start(PostgresOptions::default()).await.expect("PostgreSQL starts");
    let data = postgres.data_dir();
    postgres.freeze();
    drop(postgres);
    assert!(!data.exists());
    let marker = data.display().to_string();
    for entry in std::fs::read_dir("/proc").expect("list /proc").flatten() {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&command).contains(&marker), "left: {}", entry.path().display());
    }
}

#[tokio::test]
async fn promoted_replica_lacks_commits_that_its_link_did_not_deliver() {
    let mut primary = Postgres::start(PostgresOptions::default()).await.expect("PostgreSQL starts");
    primary.psql("postgres", "create table t (n int); insert into t values (1)").await.expect("create a table");
    let link = FaultProxy::open(primary.address()).expect("proxy starts");
    let replica = primary.start_replica(link.address()).await.expect("replica starts");
    assert_eq!(replica.psql("postgres", "select n from t").await.expect("replica reads"), "1");
    link.set_faults(FaultConfig { half_open: true, ..FaultConfig::none() });
    primary.psql("postgres", "insert into t values (2)").await.expect("primary writes");
    primary.kill9();
    replica.promote().await.expect("replica is promoted");
    let sql = "insert into t values (3); select string_agg(n::text, ',') from t";
    assert_eq!(replica.psql("postgres", sql).await.expect("replica writes"), "1,3");
}
