//! `ipseity bench`: asks a running service at a steady rate, and says how it answered.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use ipseity_domain::{ApiKey, BURST_LIMIT};
use reqwest::{Certificate, Client};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::cli::output;
use crate::config::Config;

/// Time for an answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
const MINUTE_S: u64 = 60;

#[derive(Args)]
pub(super) struct BenchCommand {
    /// A file with the keys to ask with: one a line, or what `ipseity key issue-all` wrote.
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// Where to ask; `[public] base_url` if it is left out.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Requests at the most.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    requests: u64,
    /// Seconds at the most.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Requests a second.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rate: u64,
    /// Requests under way at once.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// The authority (PEM) that signed the service's certificate, in place of the system's.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What became of a request.
struct BenchResponse {
    /// The answer's status; `None` when there was none.
    status: Option<u16>,
    latency: Duration,
    /// What the service says of its own part, in milliseconds.
    server_ms: Option<f64>,
}

impl BenchCommand {
    pub(super) async fn run(&self, config: &Config) -> Result<()> {
        let keys = read_keys(&self.keys)?;
        let total = self.requests.min(self.rate * self.seconds);
        self.ensure_enough_keys(&keys, total)?;
        let base_url = self.url.as_deref().unwrap_or(&config.public.base_url).trim_end_matches('/');
        let (start, responses) =
            (Instant::now(), self.send_requests(&format!("{base_url}/api/v1/ip"), keys, total).await?);
        self.print_results(&responses, start.elapsed())?;
        ensure!(
            responses.iter().any(|response| response.status == Some(200)),
            "nothing was answered with 200; is {base_url} the service, and are the keys its own?"
        );
        Ok(())
    }

    /// A key that asks more than 300 times in a minute is paused, and somebody has to resume it.
    fn ensure_enough_keys(&self, keys: &[String], total: u64) -> Result<()> {
        let per_minute = total.min(self.rate * MINUTE_S);
        let keys_needed = per_minute.div_ceil(BURST_LIMIT as u64);
        ensure!(
            keys.len() as u64 >= keys_needed,
            "{per_minute} requests in a minute would pause {} of {BURST_LIMIT} each; give {keys_needed} keys, or lower --rate or --requests",
            if keys.len() == 1 { "one key".to_owned() } else { format!("{} keys", keys.len()) }
        );
        Ok(())
    }

    async fn send_requests(&self, url: &str, keys: Vec<String>, total: u64) -> Result<Vec<BenchResponse>> {
        let mut client = Client::builder().user_agent("ipseity-bench").timeout(RESPONSE_TIMEOUT);
        if let Some(file) = &self.ca_file {
            let pem = fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
            client = client.tls_certs_only([Certificate::from_pem(&pem).context("--ca-file holds no certificate")?]);
        }
        let client = client.build()?;
        let style = ProgressStyle::with_template("{bar:40} {pos} of {len} requests, {per_sec}, {eta} left")?;
        let progress = ProgressBar::new(total).with_style(style);
        let permits = Arc::new(Semaphore::new(self.concurrency.into()));
        let mut tick = tokio::time::interval(Duration::from_secs(1).div_f64(f64::from(u32::try_from(self.rate)?)));
        // Requests that are late are made up for: the rate is what was asked for, or the service cannot keep up.
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
                let response = request.send().await.ok();
                progress.inc(1);
                let server_ms = response.as_ref().and_then(|response| {
                    response.headers().get("server-timing")?.to_str().ok()?.strip_prefix("total;dur=")?.parse().ok()
                });
                BenchResponse {
                    status: response.map(|response| response.status().as_u16()),
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

    fn print_results(&self, responses: &[BenchResponse], elapsed: Duration) -> Result<()> {
        let mut statuses: BTreeMap<String, usize> = BTreeMap::new();
        for response in responses {
            let status = response.status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
            *statuses.entry(status).or_default() += 1;
        }
        let completed = responses.iter().filter(|response| response.status.is_some());
        let latencies = LatencySamples::from_unsorted(
            completed.clone().map(|response| response.latency.as_secs_f64() * 1000.0).collect(),
        );
        let server_times = LatencySamples::from_unsorted(completed.filter_map(|response| response.server_ms).collect());
        #[expect(clippy::cast_precision_loss, reason = "at most a million")]
        let rate = responses.len() as f64 / elapsed.as_secs_f64();
        if self.json {
            return output::print_json(&json!({
                "requests": responses.len(), "seconds": elapsed.as_secs_f64(), "per_second": rate, "statuses": statuses,
                "answer_ms": latencies.to_json(), "service_ms": server_times.to_json(),
            }));
        }
        output::print_line(&format!(
            "{} requests in {:.1} s: {rate:.1} a second.",
            responses.len(),
            elapsed.as_secs_f64()
        ))?;
        statuses.iter().try_for_each(|(status, count)| output::print_line(&format!("{status:<10}{count}")))?;
        output::print_line(&format!("answers    {}", latencies.to_text()))?;
        output::print_line(&format!("service    {}", server_times.to_text()))
    }
}

/// Times in milliseconds, in order.
struct LatencySamples(Vec<f64>);

impl LatencySamples {
    fn from_unsorted(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self(times)
    }

    /// The time below which this many of a hundred lie.
    fn percentile(&self, percent: usize) -> Option<f64> {
        self.0.get((self.0.len() * percent / 100).min(self.0.len().saturating_sub(1))).copied()
    }

    fn to_text(&self) -> String {
        let format_percentile =
            |percent| self.percentile(percent).map_or_else(|| "–".to_owned(), |ms| format!("{ms:.1} ms"));
        format!(
            "p50 {}   p90 {}   p99 {}   longest {}",
            format_percentile(50),
            format_percentile(90),
            format_percentile(99),
            format_percentile(100)
        )
    }

    fn to_json(&self) -> Value {
        let percentile = |percent| self.percentile(percent);
        json!({ "p50": percentile(50), "p90": percentile(90), "p99": percentile(99), "longest": percentile(100) })
    }
}

fn read_keys(file: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let mut keys = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let object: Option<Value> = serde_json::from_str(line).ok();
        let key = object.as_ref().map_or(line.trim(), |object| object["key"].as_str().unwrap_or_default());
        // The line itself is not shown: it may be a key with a slip in it.
        ensure!(ApiKey::parse(key).is_some(), "line {} of {} holds no whole key", index + 1, file.display());
        keys.push(key.to_owned());
    }
    ensure!(!keys.is_empty(), "{} holds no key; `ipseity key issue` makes one", file.display());
    Ok(keys)
}
