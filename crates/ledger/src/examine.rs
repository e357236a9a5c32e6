//! What the servers of the counter store say of themselves, for whoever looks after them; no verdict depends on it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, timeout_at};

use crate::ledger::Ledger;
use crate::link::{Link, Session};
use crate::outage::LedgerError;

/// Questions for the time: the quickest answer tells the distance and the clock best.
const QUESTIONS: usize = 5;

/// A server of the counter store.
#[derive(Clone, Debug)]
pub struct Vitals {
    /// Host and port, or the file of its socket.
    pub address: String,
    /// `Redis` or `Valkey`.
    pub product: &'static str,
    /// Its version, such as `7.0.15`.
    pub version: String,
    /// Whether it takes writes, and is nobody's replica.
    pub is_primary: bool,
    /// Whether its cluster serves every slot; `None` if it is of none.
    pub cluster_is_whole: Option<bool>,
    /// What it does when its memory is full, such as `noeviction`.
    pub eviction: String,
    /// Bytes that it may use; 0 if that is not bounded.
    pub memory_max: u64,
    /// Bytes that it uses.
    pub memory_used: u64,
    /// Whether it keeps an append-only file.
    pub keeps_log: bool,
    /// Whether it saves snapshots by itself; `None` if it does not tell.
    pub keeps_snapshots: Option<bool>,
    /// Whether the last write of its file or its snapshot failed.
    pub cannot_save: bool,
    /// Milliseconds that its clock is ahead of this machine's.
    pub ahead_ms: i64,
    /// Time for a question and its answer.
    pub round_trip: Duration,
}

impl Ledger {
    /// Asks every server that owns a slot how it is.
    ///
    /// # Errors
    /// When one of them does not answer in time.
    pub async fn examine(&self) -> Result<Vec<Vitals>, LedgerError> {
        let deadline = Instant::now() + self.timeout;
        let mut all = Vec::new();
        for (link, session) in self.router.find_all(deadline).await? {
            let asked = timeout_at(deadline, examine(&link, &session)).await;
            all.push(asked.unwrap_or(Err(LedgerError::Unanswered))?);
        }
        Ok(all)
    }
}

async fn examine(link: &Link, session: &Arc<Session>) -> Result<Vitals, LedgerError> {
    let mut connection = session.connection.clone();
    let info: String = redis::cmd("INFO").query_async(&mut connection).await?;
    let field =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
    let number = |name: &str| field(name).parse().unwrap_or_default();
    // Many who rent a server out do not let its settings be read.
    let settings = redis::cmd("CONFIG").arg("GET").arg("save").query_async(&mut connection).await;
    let keeps_snapshots =
        settings.ok().map(|settings: HashMap<String, String>| settings.values().any(|points| !points.is_empty()));
    let cluster_is_whole = if session.identity.is_cluster {
        let told: String = redis::cmd("CLUSTER").arg("INFO").query_async(&mut connection).await?;
        Some(told.lines().any(|line| line == "cluster_state:ok"))
    } else {
        None
    };
    let valkey = field("valkey_version");
    let (product, version) = if valkey.is_empty() { ("Redis", field("redis_version")) } else { ("Valkey", valkey) };
    let (ahead_ms, round_trip) = read_clock(&mut connection).await?;
    Ok(Vitals {
        address: link.address().to_string(),
        product,
        version: version.to_owned(),
        is_primary: session.identity.is_primary,
        cluster_is_whole,
        eviction: field("maxmemory_policy").to_owned(),
        memory_max: number("maxmemory"),
        memory_used: number("used_memory"),
        keeps_log: field("aof_enabled") == "1",
        keeps_snapshots,
        cannot_save: ["rdb_last_bgsave_status", "aof_last_write_status"].iter().any(|name| field(name) == "err"),
        ahead_ms,
        round_trip,
    })
}

/// How far the server's clock is ahead, read by a script, as verdicts read it.
async fn read_clock(connection: &mut MultiplexedConnection) -> Result<(i64, Duration), LedgerError> {
    let mut best: Option<(i64, Duration)> = None;
    for _ in 0..QUESTIONS {
        let (sent, asked_ms) = (Instant::now(), now_ms());
        let mut ask = redis::cmd("EVAL");
        let (s, us): (i64, i64) = ask.arg("return redis.call('TIME')").arg(0).query_async(connection).await?;
        let round_trip = sent.elapsed();
        let half_ms = i64::try_from(round_trip.as_millis() / 2).unwrap_or_default();
        if best.is_none_or(|(_, quickest)| round_trip < quickest) {
            best = Some((s * 1000 + us / 1000 - asked_ms - half_ms, round_trip));
        }
    }
    best.ok_or(LedgerError::Unanswered)
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
