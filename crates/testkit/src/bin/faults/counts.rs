//! Reads the counts of both stores at the end of a run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use ipseity_testkit::eventually;
use redis::cmd;

use crate::fixture::FaultFixture;
use crate::history::ChargeCounts;

/// How long recovery may take before a run fails.
const CONSISTENCY_TIMEOUT: Duration = Duration::from_secs(20);

/// Refused requests by key number and reason.
type RefusalCounts = BTreeMap<(usize, String), u64>;

/// A usage flush after the last request, also if another node has to take it over.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// A flush of the refusals of a node.
const REFUSALS_TIMEOUT: Duration = Duration::from_secs(5);
const DAY_S: u64 = 86_400;

/// Waits until no node is in degraded mode and no charge is pending. Returns how long Redis took to decide again.
pub(crate) async fn await_recovery(fixture: &FaultFixture) -> Result<Duration> {
    let start = Instant::now();
    let is_zero = async |name: &str| fixture.sum_metric(name).await.is_ok_and(|value| value == 0);
    eventually("Redis decides again", CONSISTENCY_TIMEOUT, async || is_zero("ipseity_ledger_degraded").await).await?;
    let recovered_after = start.elapsed();
    eventually("all charges are reconciled", CONSISTENCY_TIMEOUT, async || is_zero("ipseity_pending_charges").await)
        .await?;
    Ok(recovered_after)
}

/// Waits until PostgreSQL has every count of Redis. Returns the counts in PostgreSQL by key number and day, and which
/// are still missing.
pub(crate) async fn await_flush(fixture: &FaultFixture, ids: &[String]) -> Result<(ChargeCounts, Vec<String>)> {
    let (mut redis, mut postgres) = (ChargeCounts::new(), ChargeCounts::new());
    let is_missing = |(of, count): (&(usize, u64), &u64), postgres: &ChargeCounts| {
        postgres.get(of).is_none_or(|flushed| flushed < count)
    };
    let read = eventually("PostgreSQL has the counts of Redis", FLUSH_TIMEOUT, async || {
        let both =
            async || Ok::<_, anyhow::Error>((redis_counts(fixture, ids).await?, postgres_counts(fixture, ids).await?));
        let Ok(read) = both().await else { return false };
        (redis, postgres) = read;
        !redis.iter().any(|count| is_missing(count, &postgres))
    });
    if read.await.is_err() && redis.is_empty() {
        bail!("failed to read the counts of both stores");
    }
    let missing = redis.iter().filter(|count| is_missing(*count, &postgres)).map(|(of, count)| {
        let flushed = postgres.get(of).copied().unwrap_or(0);
        format!("Redis counted {count} requests of {} on day {}, PostgreSQL has {flushed}", ids[of.0], of.1)
    });
    let missing = missing.collect();
    Ok((postgres, missing))
}

/// Counts in Redis.
async fn redis_counts(fixture: &FaultFixture, ids: &[String]) -> Result<ChargeCounts> {
    let mut counts = ChargeCounts::new();
    let latest_day = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / DAY_S + 1;
    for server in fixture.redis_servers() {
        let mut connection = server.connect().await?;
        let names: Vec<String> = cmd("KEYS").arg("i[23]:*:k:*").query_async(&mut connection).await?;
        for (key, id) in ids.iter().enumerate() {
            let Some(name) = names.iter().find(|name| name.ends_with(id.as_str())) else { continue };
            let record: Option<Vec<u8>> = cmd("GET").arg(name).query_async(&mut connection).await?;
            let Some(record) = record else { continue };
            let number = |columns: Range<usize>| -> Result<u64> {
                let digits = record.get(columns).context("unexpected record layout")?;
                Ok(std::str::from_utf8(digits)?.trim().parse()?)
            };
            // Today and yesterday: the day's number and its count.
            for (day, count) in [(number(62..68)?, number(68..80)?), (number(80..86)?, number(86..98)?)] {
                // PostgreSQL rejects days that only a wrong clock can have.
                if count > 0 && day <= latest_day {
                    counts.insert((key, day), count);
                }
            }
        }
    }
    Ok(counts)
}

/// Counts in PostgreSQL.
async fn postgres_counts(fixture: &FaultFixture, ids: &[String]) -> Result<ChargeCounts> {
    let mut counts = ChargeCounts::new();
    for row in key_rows(fixture, ids, "key_id, day - date '1970-01-01', admitted from usage").await? {
        counts.insert((row.0, row.1.parse()?), row.2);
    }
    Ok(counts)
}

/// Refused requests in PostgreSQL by key number and reason, once each key has as many for a limit as `refused`. What is
/// missing after a flush is left to the checker.
pub(crate) async fn await_refusals(fixture: &FaultFixture, ids: &[String], refused: &[u64]) -> RefusalCounts {
    let mut counts = RefusalCounts::new();
    let is_flushed = async || {
        let Ok(read) = postgres_refusals(fixture, ids).await else { return false };
        counts = read;
        let recorded = |key: usize| {
            let of_limits = ["day", "burst"].into_iter().filter_map(|reason| counts.get(&(key, reason.to_owned())));
            of_limits.sum::<u64>()
        };
        (0..ids.len()).all(|key| recorded(key) >= refused[key])
    };
    let _ = eventually("PostgreSQL has the refusals", REFUSALS_TIMEOUT, is_flushed).await;
    counts
}

async fn postgres_refusals(fixture: &FaultFixture, ids: &[String]) -> Result<RefusalCounts> {
    let mut counts = BTreeMap::new();
    for (key, reason, count) in key_rows(fixture, ids, "key_id, reason, count from refusals").await? {
        *counts.entry((key, reason)).or_default() += count;
    }
    Ok(counts)
}

/// Rows of three columns: the key's number, a text and a count.
async fn key_rows(fixture: &FaultFixture, ids: &[String], select: &str) -> Result<Vec<(usize, String, u64)>> {
    let quoted: Vec<String> = ids.iter().map(|id| format!("'{id}'")).collect();
    let sql = format!("select {select} where key_id in ({})", quoted.join(","));
    let mut rows = Vec::new();
    for row in fixture.deployment.postgres.psql("ipseity", &sql).await?.lines() {
        let fields: Vec<&str> = row.split('|').collect();
        ensure!(fields.len() == 3, "expected three columns, got {row:?}");
        let key = ids.iter().position(|id| id == fields[0]).context("unknown key in PostgreSQL")?;
        rows.push((key, fields[1].to_owned(), fields[2].parse()?));
    }
    Ok(rows)
}

/// Numbers of the keys whose record this server of a cluster has.
pub(crate) async fn keys_on_shard(fixture: &FaultFixture, shard: usize, ids: &[String]) -> Result<Vec<usize>> {
    let shards = fixture.shards.as_ref().context("Redis is not sharded")?;
    let mut connection = shards.cluster.servers[shard].connect().await?;
    let names: Vec<String> = cmd("KEYS").arg("i[23]:*:k:*").query_async(&mut connection).await?;
    let is_here = |id: &String| names.iter().any(|name| name.ends_with(id.as_str()));
    Ok(ids.iter().enumerate().filter(|(_, id)| is_here(id)).map(|(key, _)| key).collect())
}
