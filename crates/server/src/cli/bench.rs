//! `ipseity bench`: sends lookups to a running service at a steady rate.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use ipseity_domain::{ApiKey, BURST_LIMIT, causes};
use reqwest::{Certificate, Client};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::cli::output;
use crate::config::Config;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
const MINUTE_S: u64 = 60;

#[derive(Args)]
pub(super) struct BenchCommand {
    /// File with one key per line, or the output file of `ipseity key issue --from`.
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// Base URL of the service [default: `[public] base_url`].
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Maximum number of requests.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    requests: u64,
    /// Maximum duration, in seconds.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Requests per second.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rate: u64,
    /// Maximum number of concurrent requests.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// CA certificate (PEM) to trust instead of the system's.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

struct BenchResponse {
    /// `Err` with the cause without a response.
    status: Result<u16, String>,
    latency: Duration,
    /// Processing time that the service reports in `Server-Timing`.
    server_ms: Option<f64>,
}

impl BenchCommand {
    pub(super) async fn run(&self, config: &Config, json: bool) -> Result<()> {
        let keys = read_keys(&self.keys)?;
        let total = self.requests.min(self.rate * self.seconds);
        self.ensure_enough_keys(&keys, total)?;
        let base_url = self.url.as_deref().unwrap_or(&config.public.base_url).trim_end_matches('/');
        let (start, responses) =
            (Instant::now(), self.send_requests(&format!("{base_url}/api/v1/ip"), keys, total).await?);
        print_results(&responses, start.elapsed(), json)?;
        let cause = responses.iter().find_map(|response| response.status.as_ref().err());
        ensure!(
            responses.iter().any(|response| response.status == Ok(200)),
            "no request succeeded{}. Check that {base_url} is the service and that the keys belong to it.",
            cause.map(|cause| format!(": {}", cause.trim_end_matches('.'))).unwrap_or_default()
        );
        Ok(())
    }

    /// Prevents the benchmark from exceeding the burst limit, which would pause the keys.
    fn ensure_enough_keys(&self, keys: &[String], total: u64) -> Result<()> {
        let per_minute = total.min(self.rate * MINUTE_S);
        let keys_needed = per_minute.div_ceil(BURST_LIMIT as u64);
        ensure!(
            keys.len() as u64 >= keys_needed,
            "{per_minute} requests per minute would pause keys with a limit of {BURST_LIMIT}, and the file has {}. \
             Use at least {keys_needed} keys, or lower --rate or --requests.",
            keys.len()
        );
        Ok(())
    }

    async fn send_requests(&self, url: &str, keys: Vec<String>, total: u64) -> Result<Vec<BenchResponse>> {
        let mut client = Client::builder().user_agent("ipseity-bench").timeout(RESPONSE_TIMEOUT);
        if let Some(file) = &self.ca_file {
            let pem = fs::read(file).with_context(|| format!("failed to read {}", file.display()))?;
            client = client.tls_certs_only([Certificate::from_pem(&pem).context("--ca-file contains no certificate")?]);
        }
        let client = client.build()?;
        let style = ProgressStyle::with_template("{bar:40} {pos} of {len} requests, {per_sec}, {eta} left")?;
        let progress = ProgressBar::new(total).with_style(style);
        let permits = Arc::new(Semaphore::new(self.concurrency.into()));
        let mut tick = tokio::time::interval(Duration::from_secs(1).div_f64(f64::from(u32::try_from(self.rate)?)));
        // Late requests are sent as soon as possible, so that the average rate is the requested one unless the service is too slow.
        tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(self.seconds);
        let mut in_flight = JoinSet::new();
        let mut responses = Vec::new();
        for key in keys.iter().cycle().take(usize::try_from(total)?) {
            if tokio::time::timeout_at(deadline, tick.tick()).await.is_err() {
                break;
            }
            let Ok(Ok(permit)) = tokio::time::timeout_at(deadline, Arc::clone(&permits).acquire_owned()).await else {
                break;
            };
            let request = client.get(url).bearer_auth(key);
            let progress = progress.clone();
            in_flight.spawn(async move {
                let _permit = permit;
                let start = Instant::now();
                let response = request.send().await;
                progress.inc(1);
                let server_ms = response.as_ref().ok().and_then(|response| {
                    response.headers().get("server-timing")?.to_str().ok()?.strip_prefix("total;dur=")?.parse().ok()
                });
                BenchResponse {
                    status: response
                        .map(|response| response.status().as_u16())
                        .map_err(|error| causes(&error.without_url()).to_string()),
                    latency: start.elapsed(),
                    server_ms,
                }
            });
            while let Some(response) = in_flight.try_join_next() {
                responses.push(response?);
            }
        }
        while let Some(response) = in_flight.join_next().await {
            responses.push(response?);
        }
        progress.finish_and_clear();
        Ok(responses)
    }
}

fn print_results(responses: &[BenchResponse], elapsed: Duration, json: bool) -> Result<()> {
    let mut statuses: BTreeMap<String, usize> = BTreeMap::new();
    for response in responses {
        let status = response.status.as_ref().map_or_else(|_| "no_response".to_owned(), u16::to_string);
        *statuses.entry(status).or_default() += 1;
    }
    let completed = responses.iter().filter(|response| response.status.is_ok());
    let latencies = LatencySamples::from_unsorted(
        completed.clone().map(|response| response.latency.as_secs_f64() * 1000.0).collect(),
    );
    let server_times = LatencySamples::from_unsorted(completed.filter_map(|response| response.server_ms).collect());
    #[expect(clippy::cast_precision_loss, reason = "at most a million")]
    let rate = responses.len() as f64 / elapsed.as_secs_f64();
    if json {
        return output::print_json(&json!({
            "requests": responses.len(), "seconds": elapsed.as_secs_f64(), "per_second": rate, "statuses": statuses,
            "latency_ms": latencies.to_json(), "server_ms": server_times.to_json(),
        }));
    }
    output::print_line(&format!(
        "{} requests in {:.1} s, {rate:.1} per second",
        responses.len(),
        elapsed.as_secs_f64()
    ))?;
    statuses.iter().try_for_each(|(status, count)| output::print_line(&format!("{status:<13}{count}")))?;
    output::print_line(&format!("latency      {}", latencies.to_text()))?;
    output::print_line(&format!("server time  {}", server_times.to_text()))
}

/// Sorted times in milliseconds.
struct LatencySamples(Vec<f64>);

impl LatencySamples {
    fn from_unsorted(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self(times)
    }

    fn percentile(&self, percent: usize) -> Option<f64> {
        self.0.get((self.0.len() * percent / 100).min(self.0.len().saturating_sub(1))).copied()
    }

    fn to_text(&self) -> String {
        let format_percentile =
            |percent| self.percentile(percent).map_or_else(|| "–".to_owned(), |ms| format!("{ms:.1} ms"));
        format!(
            "p50 {}   p90 {}   p99 {}   max {}",
            format_percentile(50),
            format_percentile(90),
            format_percentile(99),
            format_percentile(100)
        )
    }

    fn to_json(&self) -> Value {
        let percentile = |percent| self.percentile(percent);
        json!({ "p50": percentile(50), "p90": percentile(90), "p99": percentile(99), "max": percentile(100) })
    }
}

fn read_keys(file: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
    let mut keys = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let object: Option<Value> = serde_json::from_str(line).ok();
        let key = object.as_ref().map_or(line.trim(), |object| object["key"].as_str().unwrap_or_default());
        // The line is not printed, because it may be a mistyped key.
        ensure!(ApiKey::parse(key).is_some(), "line {} of {} is not a valid key", index + 1, file.display());
        keys.push(key.to_owned());
    }
    ensure!(!keys.is_empty(), "{} contains no keys. Issue one with `ipseity key issue`.", file.display());
    Ok(keys)
}
