//! One run of one subject: what its callers saw, what it cost, and whether all answers were those that were expected.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use testkit::{House, Node, Redis};
use tokio::time::{Instant, sleep};

use crate::cpu::family_us;
use crate::load::{Load, Ran};
use crate::progress::progress;

/// Longer than the service waits with the books of what was admitted: their cost is part of a request's.
pub(crate) const BOOKS: Duration = Duration::from_millis(2_200);
/// Quiet is when nothing has done anything for so long; it is not waited for longer than the second.
const QUIET: Duration = Duration::from_millis(200);
const QUIET_MAX: Duration = Duration::from_secs(10);
/// CPU time in that while that is no work.
const QUIET_US: u64 = 20_000;
/// The part of requests that may be judged from memory because the store's answer was late: others stand for the store's own.
const RECALLED_MAX: f64 = 0.001;

/// Somebody to be measured.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) load: Load,
    pub(crate) accounts: Accounts,
}

/// Whose CPU time counts, and how the service calls what it answers.
#[derive(Clone)]
pub(crate) struct Accounts {
    pub(crate) servers: Vec<u32>,
    pub(crate) redis: Vec<u32>,
    /// Of the service: operation and outcome. Others must answer each request with success.
    pub(crate) outcome: Option<(&'static str, &'static str)>,
}

/// What a run came to; CPU time in microseconds for each request.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Figures {
    pub(crate) per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) server_us: f64,
    pub(crate) redis_us: f64,
    pub(crate) postgres_us: f64,
    /// Script calls for each request.
    pub(crate) redis_calls: f64,
    pub(crate) unexpected: u64,
}

/// Counters of the moment.
struct Snapshot {
    server_us: u64,
    redis_us: u64,
    postgres_us: u64,
    calls: u64,
    answers: BTreeMap<String, u64>,
    recalled: u64,
}

impl Accounts {
    /// Of the nodes of a house, which answer in one way, and their one counter store.
    pub(crate) fn of_nodes(house: &House, outcome: (&'static str, &'static str)) -> Self {
        let servers = house.nodes.iter().map(Node::pid).collect();
        Self { servers, redis: house.redis.pid().into_iter().collect(), outcome: Some(outcome) }
    }

    /// Runs a load and settles the accounts.
    pub(crate) async fn measure(&self, house: &House, load: impl Future<Output = Result<Ran>>) -> Result<Figures> {
        let before = self.snapshot(house).await?;
        let ran = load.await?;
        if self.outcome.is_some() {
            sleep(BOOKS).await;
        }
        self.quiet(house).await;
        let after = self.snapshot(house).await?;
        let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / ran.requests.max(1) as f64;
        let unexpected = match self.outcome {
            Some(outcome) => ran.broken + others(&before, &after, outcome, ran.requests),
            None => ran.broken + ran.refused,
        };
        Ok(Figures {
            per_s: ran.requests as f64 / ran.seconds,
            p50_us: ran.p50_us,
            p99_us: ran.p99_us,
            server_us: each(before.server_us, after.server_us),
            redis_us: each(before.redis_us, after.redis_us),
            postgres_us: each(before.postgres_us, after.postgres_us),
            redis_calls: each(before.calls, after.calls),
            unexpected,
        })
    }

    async fn snapshot(&self, house: &House) -> Result<Snapshot> {
        let (mut answers, mut recalled, mut calls, mut postgres_us) = (BTreeMap::new(), 0, 0, 0);
        if self.outcome.is_some() {
            for node in &house.nodes {
                let metrics = node.metrics().await?;
                let value = |line: &str| line.rsplit_once(' ').and_then(|(_, value)| value.parse::<u64>().ok());
                for line in metrics.lines().filter(|line| line.starts_with("ipseity_answers_total{")) {
                    let (labels, _) = line.rsplit_once(' ').context("a metric without a value")?;
                    *answers.entry(labels.to_owned()).or_default() += value(line).unwrap_or_default();
                }
                let line = metrics.lines().find(|line| line.starts_with("ipseity_recalled_total "));
                recalled += line.and_then(value).context("no count of what was recalled")?;
            }
            calls = script_calls(&house.redis).await?;
            postgres_us = house.postgres.pid().map_or(0, family_us);
        }
        let of = |pids: &[u32]| pids.iter().copied().map(family_us).sum();
        Ok(Snapshot { server_us: of(&self.servers), redis_us: of(&self.redis), postgres_us, calls, answers, recalled })
    }

    /// Waits until nobody works any more.
    async fn quiet(&self, house: &House) {
        let all = || {
            let pids = self.servers.iter().chain(&self.redis).copied().chain(house.postgres.pid());
            pids.map(family_us).sum::<u64>()
        };
        let deadline = Instant::now() + QUIET_MAX;
        let mut before = all();
        while Instant::now() < deadline {
            sleep(QUIET).await;
            let now = all();
            if now.saturating_sub(before) < QUIET_US {
                return;
            }
            before = now;
        }
    }
}

/// Answers of the service that are none of the outcome, and more judgements from memory than may be.
fn others(before: &Snapshot, after: &Snapshot, (operation, outcome): (&str, &str), requests: u64) -> u64 {
    let expected = format!("ipseity_answers_total{{operation=\"{operation}\",outcome=\"{outcome}\"}}");
    let mut sum = 0;
    for (labels, count) in after.answers.iter().filter(|(labels, _)| **labels != expected) {
        let rise = count.saturating_sub(before.answers.get(labels).copied().unwrap_or_default());
        if rise > 0 {
            progress(&format!("unexpected: {rise} of {labels}"));
        }
        sum += rise;
    }
    let recalled = after.recalled - before.recalled;
    if recalled as f64 > requests as f64 * RECALLED_MAX {
        progress(&format!("unexpected: {recalled} judged from memory"));
        sum += recalled;
    }
    sum
}

async fn script_calls(redis: &Redis) -> Result<u64> {
    let calls = redis.command_calls().await?;
    Ok(["eval", "evalsha", "fcall"].into_iter().filter_map(|name| calls.get(name)).sum())
}

/// The median of each figure; what was unexpected, of all rounds together.
pub(crate) fn median(rounds: &[Figures]) -> Figures {
    let middle = |of: fn(&Figures) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Figures {
        per_s: middle(|round| round.per_s),
        p50_us: middle(|round| round.p50_us),
        p99_us: middle(|round| round.p99_us),
        server_us: middle(|round| round.server_us),
        redis_us: middle(|round| round.redis_us),
        postgres_us: middle(|round| round.postgres_us),
        redis_calls: middle(|round| round.redis_calls),
        unexpected: rounds.iter().map(|round| round.unexpected).sum(),
    }
}
