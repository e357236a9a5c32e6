//! `ipseity bench`: asks a running service at a steady rate, and says how it answered.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use domain::{BURST_MAX, Key};
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Certificate, Client};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::show;
use crate::config::Config;

/// Time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
const MINUTE_S: u64 = 60;

#[derive(Args)]
pub(super) struct Bench {
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
    at_once: u16,
    /// The authority (PEM) that signed the service's certificate, in place of the system's.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What became of a request.
struct Outcome {
    /// The answer's status; `None` when there was none.
    status: Option<u16>,
    took: Duration,
    /// What the service says of its own part, in milliseconds.
    own_ms: Option<f64>,
}

impl Bench {
    pub(super) async fn run(&self, config: &Config) -> Result<()> {
        let keys = read_keys(&self.keys)?;
        let total = self.requests.min(self.rate * self.seconds);
        self.spare(&keys, total)?;
        let base = self.url.as_deref().unwrap_or(&config.public.base_url).trim_end_matches('/');
        let (start, outcomes) = (Instant::now(), self.ask(&format!("{base}/api/v1/ip"), keys, total).await?);
        self.show(&outcomes, start.elapsed())?;
        ensure!(
            outcomes.iter().any(|outcome| outcome.status == Some(200)),
            "nothing was answered with 200; is {base} the service, and are the keys its own?"
        );
        Ok(())
    }

    /// A key that asks more than 300 times in a minute is paused, and somebody has to resume it.
    fn spare(&self, keys: &[String], total: u64) -> Result<()> {
        let a_minute = total.min(self.rate * MINUTE_S);
        let wanted = a_minute.div_ceil(BURST_MAX as u64);
        ensure!(
            keys.len() as u64 >= wanted,
            "{a_minute} requests in a minute would pause {} of {BURST_MAX} each; give {wanted} keys, or lower --rate or --requests",
            if keys.len() == 1 { "one key".to_owned() } else { format!("{} keys", keys.len()) }
        );
        Ok(())
    }

    async fn ask(&self, url: &str, keys: Vec<String>, total: u64) -> Result<Vec<Outcome>> {
        let mut client = Client::builder().user_agent("ipseity-bench").timeout(ANSWER_MAX);
        if let Some(file) = &self.ca_file {
            let pem = fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
            client = client.tls_certs_only([Certificate::from_pem(&pem).context("--ca-file holds no certificate")?]);
        }
        let client = client.build()?;
        let style = ProgressStyle::with_template("{bar:40} {pos} of {len} requests, {per_sec}, {eta} left")?;
        let bar = ProgressBar::new(total).with_style(style);
        let seats = Arc::new(Semaphore::new(self.at_once.into()));
        let mut tick = tokio::time::interval(Duration::from_secs(1).div_f64(f64::from(u32::try_from(self.rate)?)));
        // Requests that are late are made up for: the rate is what was asked for, or the service cannot keep up.
        tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(self.seconds);
        let mut asked = JoinSet::new();
        let mut outcomes = Vec::new();
        for key in keys.iter().cycle().take(usize::try_from(total)?) {
            if tokio::time::timeout_at(deadline, tick.tick()).await.is_err() {
                break;
            }
            let Ok(Ok(seat)) = tokio::time::timeout_at(deadline, Arc::clone(&seats).acquire_owned()).await else {
                break;
            };
            let request = client.get(url).bearer_auth(key);
            let bar = bar.clone();
            asked.spawn(async move {
                let _seat = seat;
                let start = Instant::now();
                let reply = request.send().await.ok();
                bar.inc(1);
                let own_ms = reply.as_ref().and_then(|reply| {
                    reply.headers().get("server-timing")?.to_str().ok()?.strip_prefix("total;dur=")?.parse().ok()
                });
                Outcome { status: reply.map(|reply| reply.status().as_u16()), took: start.elapsed(), own_ms }
            });
            while let Some(outcome) = asked.try_join_next() {
                outcomes.push(outcome?);
            }
        }
        while let Some(outcome) = asked.join_next().await {
            outcomes.push(outcome?);
        }
        bar.finish_and_clear();
        Ok(outcomes)
    }

    fn show(&self, outcomes: &[Outcome], elapsed: Duration) -> Result<()> {
        let mut statuses: BTreeMap<String, usize> = BTreeMap::new();
        for outcome in outcomes {
            let status = outcome.status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
            *statuses.entry(status).or_default() += 1;
        }
        let answered = outcomes.iter().filter(|outcome| outcome.status.is_some());
        let all = Times::of(answered.clone().map(|outcome| outcome.took.as_secs_f64() * 1000.0).collect());
        let own = Times::of(answered.filter_map(|outcome| outcome.own_ms).collect());
        #[expect(clippy::cast_precision_loss, reason = "at most a million")]
        let rate = outcomes.len() as f64 / elapsed.as_secs_f64();
        if self.json {
            return show::json(&json!({
                "requests": outcomes.len(), "seconds": elapsed.as_secs_f64(), "per_second": rate, "statuses": statuses,
                "answer_ms": all.json(), "service_ms": own.json(),
            }));
        }
        show::line(&format!("{} requests in {:.1} s: {rate:.1} a second.", outcomes.len(), elapsed.as_secs_f64()))?;
        statuses.iter().try_for_each(|(status, count)| show::line(&format!("{status:<10}{count}")))?;
        show::line(&format!("answers    {}", all.text()))?;
        show::line(&format!("service    {}", own.text()))
    }
}

/// Times in milliseconds, in order.
struct Times(Vec<f64>);

impl Times {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self(times)
    }

    /// The time below which this many of a hundred lie.
    fn percentile(&self, percent: usize) -> Option<f64> {
        self.0.get((self.0.len() * percent / 100).min(self.0.len().saturating_sub(1))).copied()
    }

    fn text(&self) -> String {
        let shown = |percent| self.percentile(percent).map_or_else(|| "–".to_owned(), |ms| format!("{ms:.1} ms"));
        format!("p50 {}   p90 {}   p99 {}   longest {}", shown(50), shown(90), shown(99), shown(100))
    }

    fn json(&self) -> Value {
        let of = |percent| self.percentile(percent);
        json!({ "p50": of(50), "p90": of(90), "p99": of(99), "longest": of(100) })
    }
}

fn read_keys(file: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let mut keys = Vec::new();
    for (place, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let object: Option<Value> = serde_json::from_str(line).ok();
        let key = object.as_ref().map_or(line.trim(), |object| object["key"].as_str().unwrap_or_default());
        // The line itself is not shown: it may be a key with a slip in it.
        ensure!(Key::parse(key).is_some(), "line {} of {} holds no whole key", place + 1, file.display());
        keys.push(key.to_owned());
    }
    ensure!(!keys.is_empty(), "{} holds no key; `ipseity key issue` makes one", file.display());
    Ok(keys)
}
