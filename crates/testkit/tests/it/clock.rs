use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipseity_testkit::{Redis, RedisOptions, TestClock, eventually};
use redis::aio::MultiplexedConnection;
use redis::{Script, cmd};

const MIDNIGHT_MS: i64 = 1_800_000_000_000 / 86_400_000 * 86_400_000;
const HOUR_MS: i64 = 3_600_000;

async fn start_redis() -> (TestClock, Redis, MultiplexedConnection) {
    let clock = TestClock::open().expect("create a clock");
    let options = RedisOptions { clock: Some(clock.clone()), appendonly: true, ..RedisOptions::default() };
    let redis = Redis::start(options).await.expect("server starts");
    let connection = redis.connect().await.expect("connection opens");
    (clock, redis, connection)
}

/// The time in a Lua script.
async fn time_us(connection: &mut MultiplexedConnection) -> i64 {
    let script = Script::new("return redis.call('TIME')");
    let (seconds, us): (i64, i64) = script.invoke_async(connection).await.expect("valid time");
    seconds * 1_000_000 + us
}

fn real_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("time is after 1970");
    i64::try_from(since.as_micros()).expect("time fits into i64")
}

async fn exists(connection: &mut MultiplexedConnection) -> bool {
    cmd("EXISTS").arg("k").query_async(connection).await.expect("Redis responds")
}

#[tokio::test]
async fn script_time_follows_an_offset_clock() {
    let (clock, _redis, mut connection) = start_redis().await;
    for shift_ms in [0, 5 * HOUR_MS, -400 * 24 * HOUR_MS, 7] {
        clock.set_offset_ms(shift_ms);
        let before = real_us();
        let seen = time_us(&mut connection).await - shift_ms * 1_000;
        assert!((before..=real_us()).contains(&seen), "offset of {shift_ms} ms");
    }
}

#[tokio::test]
async fn script_time_is_constant_on_a_frozen_clock() {
    let (clock, mut redis, mut connection) = start_redis().await;
    clock.freeze_at_ms(MIDNIGHT_MS - 1);
    for _ in 0..1_000 {
        assert_eq!(time_us(&mut connection).await, (MIDNIGHT_MS - 1) * 1_000);
    }
    clock.advance_ms(1);
    assert_eq!(time_us(&mut connection).await, MIDNIGHT_MS * 1_000);
    clock.advance_ms(-HOUR_MS);
    assert_eq!(time_us(&mut connection).await, (MIDNIGHT_MS - HOUR_MS) * 1_000);
    redis.restart().await.expect("server restarts on a frozen clock");
    let mut connection = redis.connect().await.expect("connection opens");
    assert_eq!(time_us(&mut connection).await, (MIDNIGHT_MS - HOUR_MS) * 1_000);
}

#[tokio::test]
async fn keys_expire_by_the_test_clock() {
    let (clock, _redis, mut connection) = start_redis().await;
    clock.freeze_at_ms(MIDNIGHT_MS);
    cmd("SET").arg("k").arg("v").arg("PX").arg(5_000).exec_async(&mut connection).await.expect("set the key");
    clock.advance_ms(4_999);
    assert!(exists(&mut connection).await);
    let left: i64 = cmd("PTTL").arg("k").query_async(&mut connection).await.expect("read the TTL");
    assert_eq!(left, 1);
    clock.advance_ms(2);
    assert!(!exists(&mut connection).await);
}

#[tokio::test]
async fn redis_expires_keys_and_saves_while_its_clock_is_frozen() {
    let (clock, redis, mut connection) = start_redis().await;
    clock.freeze_at_ms(MIDNIGHT_MS);
    for number in 0..200 {
        cmd("SET").arg(number).arg("v").arg("PX").arg(10).exec_async(&mut connection).await.expect("set the key");
    }
    clock.advance_ms(HOUR_MS);
    // No client reads these keys. Only the server's timer, on the monotonic clock, removes them.
    eventually("expired keys are removed", Duration::from_secs(10), async || {
        cmd("DBSIZE").query_async::<i64>(&mut connection).await.is_ok_and(|keys| keys == 0)
    })
    .await
    .expect("flush Redis");
    redis.save_snapshot().await.expect("save a snapshot");
}
