use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use ipseity_testkit::{Postgres, PostgresOptions, Redis, RedisOptions, TestDir, eventually};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

const CHILD_ENV: &str = "TESTKIT_PRINT_AND_WAIT";

/// The next test runs this test as its child and kills it.
#[tokio::test]
async fn servers_outlive_the_starting_thread() {
    let start = || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("create a runtime");
        let redis = runtime.block_on(Redis::start(RedisOptions::default())).expect("server starts");
        (redis, runtime.block_on(Postgres::start(PostgresOptions::default())).expect("PostgreSQL starts"))
    };
    let (redis, postgres) = std::thread::spawn(start).join().expect("thread does not panic");
    assert!(redis.connect().await.is_ok());
    assert!(postgres.psql("postgres", "select 1").await.is_ok());
    if std::env::var_os(CHILD_ENV).is_some() {
        print_url(&redis.url());
        print_url(&postgres.url(""));
        std::future::pending::<()>().await;
    }
}

#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn print_url(url: &str) {
    println!("\n{url}");
}

#[tokio::test]
async fn killed_test_process_leaves_no_servers() {
    let mut child = Command::new(std::env::current_exe().expect("own path is known"))
        .args(["--exact", "processes::servers_outlive_the_starting_thread", "--nocapture"])
        .env(CHILD_ENV, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("child starts");
    let lines = BufReader::new(child.stdout.take().expect("output is piped")).lines();
    let urls = lines.map_while(Result::ok).filter(|line| line.contains("://"));
    let servers: Vec<String> = urls.take(2).map(|url| host_and_port(&url)).collect();
    assert_eq!(servers.len(), 2);
    for server in &servers {
        assert!(TcpStream::connect(server).await.is_ok(), "{server} is not running");
    }
    child.kill().expect("kill the child");
    child.wait().expect("process exits");
    for server in &servers {
        let is_gone = async || TcpStream::connect(server).await.is_err();
        eventually("the server is gone", Duration::from_secs(10), is_gone).await.expect("server stops");
    }
}

fn host_and_port(url: &str) -> String {
    url.trim_end_matches('/').rsplit(['/', '@']).next().unwrap_or_default().to_owned()
}

#[test]
fn test_dir_is_removed_on_drop() {
    let dir = TestDir::create().expect("create a directory");
    let path = dir.path().to_owned();
    std::fs::create_dir_all(path.join("a/b")).expect("create a directory");
    drop(dir);
    assert!(!path.exists());
}
