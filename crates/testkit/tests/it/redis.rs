use std::time::Duration;

use redis::cmd;
use testkit::{Needle, Redis, RedisOptions, Search};

async fn set(redis: &Redis, value: &str) {
    let mut connection = redis.connection().await.expect("a connection");
    cmd("SET").arg("k").arg(value).exec_async(&mut connection).await.expect("a value set");
}

async fn value(redis: &Redis) -> Option<String> {
    let mut connection = redis.connection().await.expect("a connection");
    cmd("GET").arg("k").query_async(&mut connection).await.expect("an answer")
}

#[tokio::test]
async fn a_killed_server_comes_back_with_its_last_snapshot_alone() {
    let mut redis = Redis::start(RedisOptions::default()).await.expect("a server");
    set(&redis, "old").await;
    redis.save_snapshot().await.expect("a snapshot");
    set(&redis, "new").await;
    redis.kill9();
    assert!(redis.connection().await.is_err(), "a killed server answered");
    redis.restart().await.expect("a server that comes back");
    assert_eq!(value(&redis).await.as_deref(), Some("old"));
    redis.flushall().await.expect("an empty server");
    assert_eq!(value(&redis).await, None);
}

#[tokio::test]
async fn a_server_with_an_append_only_file_loses_nothing_and_goes_back_when_told() {
    let mut redis = Redis::start(RedisOptions { appendonly: true, ..RedisOptions::default() }).await.expect("a server");
    set(&redis, "old").await;
    redis.save_snapshot().await.expect("a snapshot");
    set(&redis, "new").await;
    redis.restart().await.expect("a server that comes back");
    assert_eq!(value(&redis).await.as_deref(), Some("new"));
    for _ in 0..2 {
        redis.restore_snapshot().await.expect("a server that goes back");
        assert_eq!(value(&redis).await.as_deref(), Some("old"));
        set(&redis, "new").await;
    }
}

#[tokio::test]
async fn a_frozen_server_answers_once_it_is_thawed() {
    let mut redis = Redis::start(RedisOptions::default()).await.expect("a server");
    let mut connection = redis.connection().await.expect("a connection");
    redis.freeze();
    let ping = cmd("PING");
    let mut waiting = Box::pin(ping.query_async::<String>(&mut connection));
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err());
    redis.thaw();
    assert_eq!(waiting.await.expect("an answer"), "PONG");
}

#[tokio::test]
async fn calls_are_counted_by_command() {
    let redis = Redis::start(RedisOptions::default()).await.expect("a server");
    for _ in 0..3 {
        set(&redis, "x").await;
    }
    assert_eq!(redis.command_calls().await.expect("counts").get("set"), Some(&3));
}

#[tokio::test]
async fn a_planted_address_is_found_in_every_kind_of_value_and_in_the_files() {
    let redis = Redis::start(RedisOptions { appendonly: true, ..RedisOptions::default() }).await.expect("a server");
    let mut connection = redis.connection().await.expect("a connection");
    let needle = |number: usize| format!("198.51.100.{}", 101 + number);
    let plants: [&[&str]; 7] = [
        &["SET", "string", "@"],
        &["HSET", "hash", "field", "@"],
        &["SADD", "set", "@"],
        &["RPUSH", "list", "@"],
        &["ZADD", "zset", "1", "@"],
        &["XADD", "stream", "*", "field", "@"],
        &["SET", "key @", "value"],
    ];
    for (number, plant) in plants.iter().enumerate() {
        let mut command = cmd(plant[0]);
        plant[1..].iter().for_each(|word| {
            command.arg(word.replace('@', &needle(number)));
        });
        command.exec_async(&mut connection).await.expect("a plant");
    }
    let needles = (0..plants.len()).map(|number| Needle::Address(needle(number).parse().expect("an address")));
    let search = Search::open(needles.clone()).expect("a search");
    let in_memory = search.bytes("memory", &redis.dump_bytes().await.expect("a dump"));
    let in_files = search.files(&redis.data()).expect("files");
    for needle in needles {
        assert!(in_memory.iter().any(|finding| finding.needle == needle), "{needle:?} is not seen in memory");
        assert!(in_files.iter().any(|finding| finding.needle == needle), "{needle:?} is not seen in the files");
    }
}
