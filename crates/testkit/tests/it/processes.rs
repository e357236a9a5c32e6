use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use ipseity_testkit::{Postgres, PostgresOptions, Redis, RedisOptions, TestDir, eventually};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

const CHILD_ENV: &str = "TESTKIT_TELL_AND_WAIT";

/// Also the process that the next claim kills: this test, run again.
#[tokio::test]
async fn servers_outlive_the_starting_thread() {
    let start = || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let redis = runtime.block_on(Redis::start(RedisOptions::default())).expect("a server");
        (redis, runtime.block_on(Postgres::start(PostgresOptions::default())).expect("a cluster"))
    };
    let (redis, postgres) = std::thread::spawn(start).join().expect("a thread that ended");
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
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "processes::servers_outlive_the_starting_thread", "--nocapture"])
        .env(CHILD_ENV, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let urls = lines.map_while(Result::ok).filter(|line| line.contains("://"));
    let servers: Vec<String> = urls.take(2).map(|url| host_and_port(&url)).collect();
    assert_eq!(servers.len(), 2);
    for server in &servers {
        assert!(TcpStream::connect(server).await.is_ok(), "{server} is not there");
    }
    child.kill().expect("a kill");
    child.wait().expect("an end");
    for server in &servers {
        let is_gone = async || TcpStream::connect(server).await.is_err();
        eventually("the server is gone", Duration::from_secs(10), is_gone).await.expect("no server");
    }
}

fn host_and_port(url: &str) -> String {
    url.trim_end_matches('/').rsplit(['/', '@']).next().unwrap_or_default().to_owned()
}

#[test]
fn test_dir_is_removed_on_drop() {
    let folder = TestDir::create().expect("a folder");
    let path = folder.path().to_owned();
    std::fs::create_dir_all(path.join("a/b")).expect("a folder inside");
    drop(folder);
    assert!(!path.exists());
}
