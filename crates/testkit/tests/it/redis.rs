use std::time::Duration;

use ipseity_testkit::{Needle, PrivacySearch, Redis, RedisOptions};
use redis::cmd;

async fn set(redis: &Redis, value: &str) {
    let mut connection = redis.connect().await.expect("connection opens");
    cmd("SET").arg("k").arg(value).exec_async(&mut connection).await.expect("set the value");
}

async fn value(redis: &Redis) -> Option<String> {
    let mut connection = redis.connect().await.expect("connection opens");
    cmd("GET").arg("k").query_async(&mut connection).await.expect("Redis responds")
}

#[tokio::test]
async fn killed_redis_restarts_from_its_last_snapshot() {
    let mut redis = Redis::start(RedisOptions::default()).await.expect("server starts");
    set(&redis, "old").await;
    redis.save_snapshot().await.expect("save a snapshot");
    set(&redis, "new").await;
    redis.kill9();
    assert!(redis.connect().await.is_err(), "a killed server responded");
    redis.restart().await.expect("server restarts");
    assert_eq!(value(&redis).await.as_deref(), Some("old"));
    redis.flushall().await.expect("flush Redis");
    assert_eq!(value(&redis).await, None);
}

#[tokio::test]
async fn append_only_redis_loses_nothing_and_restores_snapshots() {
    let mut redis =
        Redis::start(RedisOptions { appendonly: true, ..RedisOptions::default() }).await.expect("server starts");
    set(&redis, "old").await;
    redis.save_snapshot().await.expect("save a snapshot");
    set(&redis, "new").await;
    redis.restart().await.expect("server restarts");
    assert_eq!(value(&redis).await.as_deref(), Some("new"));
    for _ in 0..2 {
        redis.restore_snapshot().await.expect("restore the snapshot");
        assert_eq!(value(&redis).await.as_deref(), Some("old"));
        set(&redis, "new").await;
    }
}

#[tokio::test]
async fn frozen_redis_responds_after_thaw() {
    let mut redis = Redis::start(RedisOptions::default()).await.expect("server starts");
    let mut connection = redis.connect().await.expect("connection opens");
    redis.freeze();
    let ping = cmd("PING");
    let mut waiting = Box::pin(ping.query_async::<String>(&mut connection));
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err());
    redis.thaw();
    assert_eq!(waiting.await.expect("Redis responds"), "PONG");
}

#[tokio::test]
async fn redis_calls_are_counted_per_command() {
    let redis = Redis::start(RedisOptions::default()).await.expect("server starts");
    for _ in 0..3 {
        set(&redis, "x").await;
    }
    assert_eq!(redis.command_calls().await.expect("read the counts").get("set"), Some(&3));
}

#[tokio::test]
async fn planted_address_is_found_in_redis_values_and_files() {
    let redis =
        Redis::start(RedisOptions { appendonly: true, ..RedisOptions::default() }).await.expect("server starts");
    let mut connection = redis.connect().await.expect("connection opens");
    let needle = |number: usize| format!("198.51.100.{}", 101 + number);
    let planted_commands: [&[&str]; 7] = [
        &["SET", "string", "@"],
        &["HSET", "hash", "field", "@"],
        &["SADD", "set", "@"],
        &["RPUSH", "list", "@"],
        &["ZADD", "zset", "1", "@"],
        &["XADD", "stream", "*", "field", "@"],
        &["SET", "key @", "value"],
    ];
    for (number, planted) in planted_commands.iter().enumerate() {
        let mut command = cmd(planted[0]);
        planted[1..].iter().for_each(|word| {
            command.arg(word.replace('@', &needle(number)));
        });
        command.exec_async(&mut connection).await.expect("write the value");
    }
    let needles =
        (0..planted_commands.len()).map(|number| Needle::Address(needle(number).parse().expect("valid address")));
    let search = PrivacySearch::new(needles.clone()).expect("create a search");
    let in_memory = search.search_bytes("memory", &redis.dump_all().await.expect("dump the data"));
    let in_files = search.search_files(&redis.data_dir()).expect("search the files");
    for needle in needles {
        assert!(in_memory.iter().any(|finding| finding.needle == needle), "{needle:?} is not found in memory");
        assert!(in_files.iter().any(|finding| finding.needle == needle), "{needle:?} is not found in the files");
    }
}
