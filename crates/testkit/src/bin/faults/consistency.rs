//! Compares what clients saw with the counts in Redis and PostgreSQL.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ipseity_testkit::eventually;
use redis::cmd;

use crate::fixture::{FaultFixture, LoadKey};

/// Charged requests by key and day.
pub(crate) type ChargeCounts = BTreeMap<(String, u64), u64>;

/// How long the counts may take to agree after recovery.
const CONSISTENCY_TIMEOUT: Duration = Duration::from_secs(30);

/// Time from the end of a fault until Redis decides again, and until all counts agree.
#[derive(Clone, Copy)]
pub(crate) struct RecoveryTimes {
    pub(crate) recovered_after: Duration,
    pub(crate) consistent_after: Duration,
}

/// Waits until no node is in degraded mode, no charges are pending, and Redis and PostgreSQL agree. Where Redis lost
/// counts, PostgreSQL may have up to `lost` more for a key.
pub(crate) async fn await_recovery(
    fixture: &FaultFixture,
    keys: &[LoadKey],
    lost: &[u64],
) -> Result<(RecoveryTimes, ChargeCounts)> {
    let start = Instant::now();
    let is_zero = async |name: &str| fixture.sum_metric(name).await.is_ok_and(|value| value == 0);
    eventually("Redis decides again", CONSISTENCY_TIMEOUT, async || is_zero("ipseity_ledger_degraded").await).await?;
    let recovered_after = start.elapsed();
    eventually("all charges are reconciled", CONSISTENCY_TIMEOUT, async || is_zero("ipseity_pending_charges").await)
        .await?;
    let mut counts = (ChargeCounts::new(), ChargeCounts::new());
    let lost: BTreeMap<&str, u64> = keys.iter().map(|key| key.id.as_str()).zip(lost.iter().copied()).collect();
    let is_consistent = |of: &(String, u64), count: u64, history: &ChargeCounts| {
        let ahead = history.get(of).and_then(|history| history.checked_sub(count));
        ahead.is_some_and(|ahead| ahead <= lost[of.0.as_str()])
    };
    let stores_agree = eventually("Redis and PostgreSQL agree", CONSISTENCY_TIMEOUT, async || {
        let both = async || {
            Ok::<_, anyhow::Error>((redis_counts(fixture, keys).await?, postgres_counts(fixture, keys).await?))
        };
        let Ok(read) = both().await else { return false };
        counts = read;
        // After a loss, Redis has no record of a key until its next request. PostgreSQL still has its usage.
        counts.0.iter().all(|(of, count)| is_consistent(of, *count, &counts.1))
    });
    if stores_agree.await.is_err() {
        let differing: Vec<_> =
            counts.0.iter().filter(|(of, count)| !is_consistent(of, **count, &counts.1)).take(3).collect();
        let history: Vec<_> = differing.iter().map(|(of, _)| counts.1.get(*of)).collect();
        bail!("Redis has {differing:?}, but PostgreSQL has {history:?}");
    }
    Ok((RecoveryTimes { recovered_after, consistent_after: start.elapsed() }, counts.1))
}

/// Counts in Redis.
async fn redis_counts(fixture: &FaultFixture, keys: &[LoadKey]) -> Result<ChargeCounts> {
    let mut connection = fixture.deployment.redis.connect().await?;
    let redis_keys: Vec<String> = cmd("KEYS").arg("i2:*:k:*").query_async(&mut connection).await?;
    let mut counts = ChargeCounts::new();
    for key in keys {
        let Some(name) = redis_keys.iter().find(|name| name.ends_with(&key.id)) else { continue };
        let record: Vec<u8> = cmd("GET").arg(name).query_async(&mut connection).await?;
        let number = |columns: Range<usize>| -> Result<u64> {
            let digits = record.get(columns).context("unexpected record layout")?;
            Ok(std::str::from_utf8(digits)?.parse()?)
        };
        // Today and yesterday: the day's number and its count.
        for (day, count) in [(number(62..68)?, number(68..80)?), (number(80..86)?, number(86..98)?)] {
            if count == 0 {
                continue;
            }
            counts.insert((key.id.clone(), day), count);
        }
    }
    Ok(counts)
}

/// Counts in PostgreSQL.
async fn postgres_counts(fixture: &FaultFixture, keys: &[LoadKey]) -> Result<ChargeCounts> {
    let ids: Vec<String> = keys.iter().map(|key| format!("'{}'", key.id)).collect();
    let sql =
        format!("select key_id, day - date '1970-01-01', admitted from usage where key_id in ({})", ids.join(","));
    let mut counts = ChargeCounts::new();
    for row in fixture.deployment.postgres.psql("ipseity", &sql).await?.lines() {
        let fields: Vec<&str> = row.split('|').collect();
        ensure!(fields.len() == 3, "expected three columns, got {row:?}");
        counts.insert((fields[0].to_owned(), fields[1].parse()?), fields[2].parse()?);
    }
    Ok(counts)
}
