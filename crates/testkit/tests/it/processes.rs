use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::{Folder, Postgres, PostgresOptions, Redis, RedisOptions, eventually};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

const CHILD: &str = "TESTKIT_TELL_AND_WAIT";

/// Also the process that the next claim kills: this test, run again.
#[tokio::test]
async fn servers_outlive_the_thread_that_started_them() {
    let start = || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let redis = runtime.block_on(Redis::start(RedisOptions::default())).expect("a server");
        (redis, runtime.block_on(Postgres::start(PostgresOptions::default())).expect("a cluster"))
    };
    let (redis, postgres) = std::thread::spawn(start).join().expect("a thread that ended");
    assert!(redis.connection().await.is_ok());
    assert!(postgres.psql("postgres", "select 1").await.is_ok());
    if std::env::var_os(CHILD).is_some() {
        tell(&redis.url());
        tell(&postgres.url(""));
        std::future::pending::<()>().await;
    }
}

#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn tell(url: &str) {
    println!("\n{url}");
}

#[tokio::test]
async fn a_killed_test_process_leaves_no_server() {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "processes::servers_outlive_the_thread_that_started_them", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let urls = lines.map_while(Result::ok).filter(|line| line.contains("://"));
    let servers: Vec<String> = urls.take(2).map(|url| authority(&url)).collect();
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

fn authority(url: &str) -> String {
    url.trim_end_matches('/').rsplit(['/', '@']).next().unwrap_or_default().to_owned()
}

#[test]
fn a_folder_is_gone_with_its_owner() {
    let folder = Folder::open().expect("a folder");
    let path = folder.path().to_owned();
    std::fs::create_dir_all(path.join("a/b")).expect("a folder inside");
    drop(folder);
    assert!(!path.exists());
}
