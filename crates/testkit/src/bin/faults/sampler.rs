//! Reads the nodes' metrics during a run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use ipseity_testkit::TestClient;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::history::NodeSample;
use crate::recorder::Recorder;

const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Ops listeners of the current node processes.
pub(crate) type OpsTargets = Arc<Mutex<Vec<(usize, SocketAddr)>>>;

/// Samples all nodes until it is dropped.
pub(crate) struct NodeSampler(JoinHandle<()>);

impl NodeSampler {
    pub(crate) fn start(targets: &OpsTargets, recorder: &Recorder) -> Self {
        let (targets, recorder) = (Arc::clone(targets), recorder.clone());
        Self(tokio::spawn(async move {
            loop {
                let current = targets.lock().unwrap_or_else(PoisonError::into_inner).clone();
                for (process, address) in current {
                    let start = recorder.now();
                    let metrics = timeout(SAMPLE_TIMEOUT, read_metrics(address)).await;
                    if let Ok(Ok(metrics)) = metrics {
                        recorder.record_sample(node_sample(process, start, recorder.now(), &metrics));
                    }
                }
                sleep(SAMPLE_INTERVAL).await;
            }
        }))
    }
}

impl Drop for NodeSampler {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Text of a node's metrics.
pub(crate) async fn read_metrics(ops: SocketAddr) -> Result<String> {
    let reply = TestClient::new(ops).get("/metrics", &[]).await?;
    ensure!(reply.status == 200, "/metrics returned {}", reply.status);
    Ok(reply.text())
}

fn node_sample(process: usize, at: Duration, received_at: Duration, metrics: &str) -> NodeSample {
    NodeSample {
        process,
        at,
        received_at,
        is_degraded: sum_series(metrics, "ipseity_ledger_degraded") > 0,
        pending: sum_series(metrics, "ipseity_pending_charges"),
        decided_locally: sum_series(metrics, "ipseity_degraded_decisions_total"),
    }
}

/// Sums all series of a metric, with any labels.
pub(crate) fn sum_series(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let rest = if rest.starts_with('{') { rest.rsplit_once('}')?.1 } else { rest };
        rest.strip_prefix(' ')?.parse::<u64>().ok()
    });
    values.sum()
}

/// Responses to lookups by outcome.
pub(crate) fn lookup_outcomes(metrics: &str) -> BTreeMap<String, u64> {
    let outcomes = metrics.lines().filter_map(|line| {
        let (labels, value) = line.strip_prefix("ipseity_api_requests_total{")?.split_once("} ")?;
        let label = |name: &str| labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_suffix('"'));
        (label("operation=\"")? == "lookup").then_some((label("outcome=\"")?.to_owned(), value.parse().ok()?))
    });
    outcomes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_over_labels() {
        let text = "a_total 3\na{owner=\"x y\"} 1\na{owner=\"z\"} 2\nab 7\n";
        assert_eq!((sum_series(text, "a"), sum_series(text, "a_total"), sum_series(text, "none")), (3, 3, 0));
        let text = "ipseity_api_requests_total{operation=\"lookup\",outcome=\"success\"} 5\n\
                    ipseity_api_requests_total{operation=\"demo\",outcome=\"success\"} 9\n";
        assert_eq!(lookup_outcomes(text), BTreeMap::from([("success".to_owned(), 5)]));
    }
}
