//! Calls of `charge.lua` by hand, with any time, and the contents of Redis.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use futures_util::StreamExt;
use ipseity_domain::{ApiKey, DailyUsage, KeyId, UtcDay};
use ipseity_ledger::{AppliedRestrictions, Arrival, ChargeId, Ledger};
use ipseity_testkit::Redis;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, cmd};

use super::days::{Counts, DayColumns};
use crate::fixture::generate_key;

/// What a call needs to know about a server.
pub struct RawCalls {
    script_sha: String,
    /// The first part of the incarnation.
    data_set: String,
}

impl RawCalls {
    /// Reads it from a real call.
    pub async fn capture(redis: &Redis, ledger: &Ledger) -> Self {
        let client = redis::Client::open(redis.url()).expect("valid URL");
        let monitor = client.get_async_monitor().await.expect("Redis accepts a connection");
        let mut lines = monitor.into_on_message::<String>();
        ledger
            .charge(&generate_key(), ChargeId::next(), Arrival::Here(Instant::now()), AppliedRestrictions::default())
            .await
            .expect("charge succeeds");
        loop {
            let line = lines.next().await.expect("call is reported");
            let arguments: Vec<&str> = line.split(' ').map(|argument| argument.trim_matches('"')).collect();
            let Some(start) = arguments.iter().position(|argument| argument.eq_ignore_ascii_case("evalsha")) else {
                continue;
            };
            // The script, the number of keys, both keys, then the incarnation.
            let [script_sha, data_set] = [1, 5].map(|offset| arguments[start + offset]);
            return Self { script_sha: script_sha.to_owned(), data_set: data_set[..8].to_owned() };
        }
    }

    /// A call with charges that were sent at this time. Each has the arrival of its request.
    pub fn charge(&self, database: Option<[u8; 8]>, sent_ms: u64, charges: &[(ApiKey, u64, ChargeId)]) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(&self.script_sha).arg(2 * charges.len());
        for (key, ..) in charges {
            call.arg(redis_key(key.id, "k")).arg(redis_key(key.id, "log"));
        }
        let incarnation = [self.data_set.as_bytes(), database.as_ref().map_or(&[][..], |name| name)].concat();
        call.arg(incarnation).arg("fence").arg(300).arg(60_000).arg(sent_ms).arg(sent_ms);
        for (key, arrival_ms, id) in charges {
            call.arg([&key.digest.as_bytes()[..], format!("{arrival_ms}{id}").as_bytes()].concat());
        }
        call
    }
}

/// The prefix of all Redis keys of an API key.
fn bucket(id: KeyId) -> String {
    let hash =
        id.as_str().bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("i3:{{b{:04}}}", hash % 1024)
}

/// The Redis key of a record (`k`) or log (`log`).
pub fn redis_key(id: KeyId, kind: &str) -> String {
    format!("{}:{kind}:{id}", bucket(id))
}

/// The name of a Redis key that the keys of a bucket share.
pub fn bucket_key(id: KeyId, kind: &str) -> String {
    format!("{}:{kind}", bucket(id))
}

/// What Redis has of a key.
#[derive(Debug, PartialEq, Eq)]
pub struct StoredKey {
    record: Vec<u8>,
    /// The times of the log.
    pub log: Vec<u64>,
    /// Counts that no column holds.
    pub unflushed: Counts,
    /// The burst epochs of pauses that PostgreSQL may not have.
    pub pending: BTreeSet<u64>,
}

type Fields = HashMap<String, String>;

impl StoredKey {
    pub async fn read(connection: &mut MultiplexedConnection, id: KeyId) -> Self {
        let mut pipe = redis::pipe();
        pipe.get(redis_key(id, "k")).lrange(redis_key(id, "log"), 0, -1);
        pipe.hgetall(bucket_key(id, "unflushed")).hgetall(bucket_key(id, "pending"));
        let (record, log, unflushed, pending): (Option<Vec<u8>>, Vec<String>, Fields, Fields) =
            pipe.query_async(connection).await.expect("Redis answers");
        let numbers_of =
            |field: &str| -> Option<u64> { field.strip_prefix(id.as_str())?.strip_prefix(':')?.parse().ok() };
        let unflushed = unflushed.iter().filter_map(|(field, count)| {
            let day = UtcDay(u32::try_from(numbers_of(field)?).expect("day fits"));
            Some((day, count.parse().expect("count")))
        });
        Self {
            record: record.unwrap_or_default(),
            log: log.iter().map(|entry| entry[..13].parse().expect("time")).collect(),
            unflushed: unflushed.collect(),
            pending: pending.keys().filter_map(|field| numbers_of(field)).collect(),
        }
    }

    fn number(&self, start: usize, width: usize) -> u64 {
        let digits = self.record.get(start..start + width).expect("record exists");
        std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).expect("column is a number")
    }

    pub fn newest_ms(&self) -> u64 {
        self.number(49, 13)
    }

    pub fn days(&self) -> DayColumns {
        [(62, 68), (80, 86)].map(|(day, count)| DailyUsage {
            day: UtcDay(u32::try_from(self.number(day, 6)).expect("day fits")),
            count: self.number(count, 12),
        })
    }
}
