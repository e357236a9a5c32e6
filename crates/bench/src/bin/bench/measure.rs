//! One run of one subject: what its clients saw, what it cost, and whether all responses were expected.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use ipseity_testkit::{Deployment, Node, Redis};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::load::{BenchLoad, BenchLoadResult};
use crate::process_stats::process_tree_cpu_us;
use crate::progress::progress;

/// Longer than until the last part of the next usage flush, whose cost belongs to the requests.
pub(crate) const USAGE_FLUSH_WAIT: Duration = Duration::from_millis(4_000);
/// Processes are idle if they use little CPU time for the first duration. The second is a timeout.
const IDLE_INTERVAL: Duration = Duration::from_millis(200);
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum CPU time of idle processes in that interval.
const IDLE_CPU_US: u64 = 20_000;
/// Share of requests that may be decided locally because Redis was late. Local decisions cost less.
const DEGRADED_SHARE_MAX: f64 = 0.001;

/// Something to measure.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) load: BenchLoad,
    pub(crate) processes: MeasuredProcesses,
}

/// Processes whose CPU time counts, and the expected outcome.
#[derive(Clone)]
pub(crate) struct MeasuredProcesses {
    pub(crate) servers: Vec<u32>,
    pub(crate) redis: Vec<u32>,
    /// Operation and outcome of the service. Other servers must respond to each request with success.
    pub(crate) expected_outcome: Option<(&'static str, &'static str)>,
}

/// Result of a run, with CPU time in microseconds per request.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct BenchMeasurement {
    pub(crate) per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) server_us: f64,
    pub(crate) redis_us: f64,
    pub(crate) postgres_us: f64,
    /// Script calls per request.
    pub(crate) redis_calls: f64,
    pub(crate) unexpected: u64,
}

/// Values of all counters at one time.
struct CounterSnapshot {
    server_us: u64,
    redis_us: u64,
    postgres_us: u64,
    redis_calls: u64,
    responses: BTreeMap<String, u64>,
    degraded: u64,
}

impl MeasuredProcesses {
    /// All nodes of a deployment, with one expected outcome, and their Redis.
    pub(crate) fn for_nodes(deployment: &Deployment, outcome: (&'static str, &'static str)) -> Self {
        let servers = deployment.nodes.iter().map(Node::pid).collect();
        Self { servers, redis: deployment.redis.pid().into_iter().collect(), expected_outcome: Some(outcome) }
    }

    /// Runs a load and computes its cost.
    pub(crate) async fn measure(
        &self,
        deployment: &Deployment,
        load: impl Future<Output = Result<BenchLoadResult>>,
    ) -> Result<BenchMeasurement> {
        let before = self.snapshot(deployment).await?;
        let result = load.await?;
        if self.expected_outcome.is_some() {
            sleep(USAGE_FLUSH_WAIT).await;
        }
        self.wait_until_idle(deployment).await;
        let after = self.snapshot(deployment).await?;
        let per_request = |before: u64, after: u64| after.saturating_sub(before) as f64 / result.requests.max(1) as f64;
        let unexpected = match self.expected_outcome {
            Some(outcome) => result.failed + unexpected_responses(&before, &after, outcome, result.requests),
            None => result.failed + result.refused,
        };
        Ok(BenchMeasurement {
            per_s: result.requests as f64 / result.seconds,
            p50_us: result.p50_us,
            p99_us: result.p99_us,
            server_us: per_request(before.server_us, after.server_us),
            redis_us: per_request(before.redis_us, after.redis_us),
            postgres_us: per_request(before.postgres_us, after.postgres_us),
            redis_calls: per_request(before.redis_calls, after.redis_calls),
            unexpected,
        })
    }

    async fn snapshot(&self, deployment: &Deployment) -> Result<CounterSnapshot> {
        let (mut responses, mut degraded, mut redis_calls, mut postgres_us) = (BTreeMap::new(), 0, 0, 0);
        if self.expected_outcome.is_some() {
            for node in &deployment.nodes {
                let metrics = node.metrics().await?;
                let value = |line: &str| line.rsplit_once(' ').and_then(|(_, value)| value.parse::<u64>().ok());
                for line in metrics.lines().filter(|line| line.starts_with("ipseity_api_requests_total{")) {
                    let (labels, _) = line.rsplit_once(' ').context("a metric without a value")?;
                    *responses.entry(labels.to_owned()).or_default() += value(line).unwrap_or_default();
                }
                let line = metrics.lines().find(|line| line.starts_with("ipseity_degraded_decisions_total "));
                degraded += line.and_then(value).context("no metric for degraded decisions")?;
            }
            redis_calls = script_calls(&deployment.redis).await?;
            postgres_us = deployment.postgres.pid().map_or(0, process_tree_cpu_us);
        }
        let cpu_of = |pids: &[u32]| pids.iter().copied().map(process_tree_cpu_us).sum();
        Ok(CounterSnapshot {
            server_us: cpu_of(&self.servers),
            redis_us: cpu_of(&self.redis),
            postgres_us,
            redis_calls,
            responses,
            degraded,
        })
    }

    /// Waits until all processes are idle.
    async fn wait_until_idle(&self, deployment: &Deployment) {
        let total_cpu = || {
            let pids = self.servers.iter().chain(&self.redis).copied().chain(deployment.postgres.pid());
            pids.map(process_tree_cpu_us).sum::<u64>()
        };
        let deadline = Instant::now() + IDLE_TIMEOUT;
        let mut before = total_cpu();
        while Instant::now() < deadline {
            sleep(IDLE_INTERVAL).await;
            let now = total_cpu();
            if now.saturating_sub(before) < IDLE_CPU_US {
                return;
            }
            before = now;
        }
    }
}

/// Counts responses with another outcome, and local decisions above the maximum.
fn unexpected_responses(
    before: &CounterSnapshot,
    after: &CounterSnapshot,
    (operation, outcome): (&str, &str),
    requests: u64,
) -> u64 {
    let expected = format!("ipseity_api_requests_total{{operation=\"{operation}\",outcome=\"{outcome}\"}}");
    let mut sum = 0;
    for (labels, count) in after.responses.iter().filter(|(labels, _)| **labels != expected) {
        let rise = count.saturating_sub(before.responses.get(labels).copied().unwrap_or_default());
        if rise > 0 {
            progress(&format!("unexpected: {rise} of {labels}"));
        }
        sum += rise;
    }
    let degraded = after.degraded - before.degraded;
    if degraded as f64 > requests as f64 * DEGRADED_SHARE_MAX {
        progress(&format!("unexpected: {degraded} degraded decisions"));
        sum += degraded;
    }
    sum
}

async fn script_calls(redis: &Redis) -> Result<u64> {
    let calls = redis.command_calls().await?;
    Ok(["eval", "evalsha", "fcall"].into_iter().filter_map(|name| calls.get(name)).sum())
}

/// Median of each figure, and the sum of unexpected responses.
pub(crate) fn median(rounds: &[BenchMeasurement]) -> BenchMeasurement {
    let middle = |of: fn(&BenchMeasurement) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    BenchMeasurement {
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
