//! `ipseity top`: live metrics of a running node.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use crate::cli::metrics_text::MetricsSnapshot;
use crate::cli::ops_client::{self, NodeArgument};
use crate::cli::output;
use crate::config::Config;

const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";
const DAY_S: f64 = 86_400.0;

#[derive(Args)]
pub(super) struct TopCommand {
    #[command(flatten)]
    node: NodeArgument,
    /// Seconds between updates.
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    interval_s: u64,
    /// Print once and exit.
    #[arg(long)]
    once: bool,
}

impl TopCommand {
    pub(super) async fn run(&self, config: &Config, json: bool) -> Result<()> {
        let node = self.node.address(config);
        let mut previous = MetricsSnapshot::parse_series(&ops_client::get(node, "/metrics").await?);
        loop {
            tokio::time::sleep(Duration::from_secs(self.interval_s)).await;
            let current = MetricsSnapshot::parse_series(&ops_client::get(node, "/metrics").await?);
            if json {
                output::print_json(&view_json(&previous, &current, node))?;
            } else {
                let clear = if std::io::stdout().is_terminal() && !self.once { CLEAR_SCREEN } else { "" };
                output::print_line(&format!("{clear}{}", render_view(&previous, &current, node)))?;
            }
            if self.once {
                return Ok(());
            }
            previous = current;
        }
    }
}

/// The main numbers of the view. Rates are per second, since the previous snapshot.
fn view_json(previous: &MetricsSnapshot, current: &MetricsSnapshot, node: SocketAddr) -> Value {
    let interval_s = current.taken_at.duration_since(previous.taken_at).as_secs_f64();
    let rate = |name: &str| (current.sum(name, None) - previous.sum(name, None)) / interval_s;
    let gauge = |name: &str| current.sum(name, None);
    let quantiles_ms = |name: &str| {
        let quantile_ms = |quantile| current.quantile(previous, name, quantile).map(|seconds| seconds * 1000.0);
        json!({ "p50": quantile_ms(0.5), "p90": quantile_ms(0.9), "p99": quantile_ms(0.99) })
    };
    let outcomes: BTreeMap<_, _> = outcome_rates(previous, current, interval_s).into_iter().collect();
    json!({
        "at": output::format_rfc3339(i64::try_from(clock_s()).unwrap_or(i64::MAX)),
        "node": node.to_string(),
        "requests_per_s": rate("ipseity_api_requests_total"),
        "outcomes_per_s": outcomes,
        "latency_ms": quantiles_ms("ipseity_http_request_duration_seconds"),
        "charges_per_s": rate("ipseity_ledger_charge_duration_seconds_count"),
        "charge_ms": quantiles_ms("ipseity_ledger_charge_duration_seconds"),
        "degraded": gauge("ipseity_ledger_degraded") > 0.0,
        "pending_charges": gauge("ipseity_pending_charges"),
        "connections_open": gauge("ipseity_connections_open"),
        "connections_max": gauge("ipseity_connections_max"),
        "resident_memory_bytes": gauge("process_resident_memory_bytes"),
    })
}

fn clock_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

fn render_view(previous: &MetricsSnapshot, current: &MetricsSnapshot, node: SocketAddr) -> String {
    let interval_s = current.taken_at.duration_since(previous.taken_at).as_secs_f64();
    let rate =
        |name: &str, label: Option<(&str, &str)>| (current.sum(name, label) - previous.sum(name, label)) / interval_s;
    let gauge = |name: &str| current.sum(name, None);
    let clock_s = clock_s();
    let version = current.series_of("ipseity_build_info").next().map_or("", |build| build.label("version"));

    let ledger_line = if gauge("ipseity_ledger_degraded") > 0.0 {
        format!("degraded: Redis cannot be used; {} pending charges", gauge("ipseity_pending_charges"))
    } else {
        format!(
            "{:.1}/s charged in Redis   {}",
            rate("ipseity_ledger_charge_duration_seconds_count", None),
            format_quantiles(previous, current, "ipseity_ledger_charge_duration_seconds")
        )
    };
    let task_rates = |name: &str| {
        let failed = rate(name, Some(("outcome", "failed")));
        format!("{:.1}/s, {failed:.1}/s failed", rate(name, Some(("outcome", "succeeded"))))
    };
    let rows = [
        ("requests", format_outcomes(previous, current, interval_s)),
        ("latency", format_quantiles(previous, current, "ipseity_http_request_duration_seconds")),
        ("ledger", ledger_line),
        (
            "tasks",
            format!(
                "usage flushes {}   outbox runs {}   key record fills {:.1}/s",
                task_rates("ipseity_usage_flushes_total"),
                task_rates("ipseity_outbox_runs_total"),
                rate("ipseity_key_record_fills_total", None)
            ),
        ),
        (
            "connections",
            format!(
                "{} open of {}   {:.1}/s new   {:.1}/s closed by limits",
                gauge("ipseity_connections_open"),
                gauge("ipseity_connections_max"),
                rate("ipseity_connections_accepted_total", None),
                rate("ipseity_connections_closed_total", None)
            ),
        ),
        (
            "process",
            format!(
                "{:.0} MB   {} of {} file descriptors",
                gauge("process_resident_memory_bytes") / 1e6,
                gauge("process_open_fds"),
                gauge("process_max_fds")
            ),
        ),
        (
            "geo data",
            join_or_none(current.series_of("ipseity_geo_database_build_timestamp_seconds").map(|built| {
                #[expect(clippy::cast_precision_loss, reason = "days")]
                let days = (clock_s as f64 - built.value) / DAY_S;
                format!("{} {days:.0} days old", built.label("database"))
            })),
        ),
        (
            "certificates",
            join_or_none(current.series_of("ipseity_certificate_expiry_timestamp_seconds").map(|certificate| {
                #[expect(clippy::cast_precision_loss, reason = "days")]
                let days = (certificate.value - clock_s as f64) / DAY_S;
                format!("{} expires in {days:.0} days", certificate.label("name"))
            })),
        ),
    ];
    let header = format!(
        "ipseity {version}   {node}   {} UTC\n",
        output::format_utc(i64::try_from(clock_s).unwrap_or(i64::MAX))
    );
    let rows = rows.into_iter().map(|(name, text)| format!("{name:<14}{text}"));
    [header].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

/// Requests per second, in total and by outcome, most frequent first.
fn format_outcomes(previous: &MetricsSnapshot, current: &MetricsSnapshot, interval_s: f64) -> String {
    let name = "ipseity_api_requests_total";
    let total = (current.sum(name, None) - previous.sum(name, None)) / interval_s;
    let rates = outcome_rates(previous, current, interval_s);
    let each = rates.iter().map(|(name, rate)| format!("   {name} {rate:.1}"));
    format!("{total:.1}/s{}", each.collect::<String>())
}

/// Requests per second by outcome, most frequent first.
fn outcome_rates<'a>(previous: &MetricsSnapshot, current: &'a MetricsSnapshot, interval_s: f64) -> Vec<(&'a str, f64)> {
    let mut names: Vec<&str> =
        current.series_of("ipseity_api_requests_total").map(|series| series.label("outcome")).collect();
    names.sort_unstable();
    names.dedup();
    let rate = |label| {
        (current.sum("ipseity_api_requests_total", label) - previous.sum("ipseity_api_requests_total", label))
            / interval_s
    };
    let mut rates: Vec<_> = names.into_iter().map(|name| (name, rate(Some(("outcome", name))))).collect();
    rates.retain(|(_, rate)| *rate > 0.0);
    rates.sort_by(|a, b| b.1.total_cmp(&a.1));
    rates
}

fn format_quantiles(previous: &MetricsSnapshot, current: &MetricsSnapshot, name: &str) -> String {
    let format_quantile = |quantile: f64, label: &str| {
        let time = current.quantile(previous, name, quantile);
        format!("{label} {}", time.map_or_else(|| "–".to_owned(), |time| format!("{:.1} ms", time * 1000.0)))
    };
    [format_quantile(0.5, "p50"), format_quantile(0.9, "p90"), format_quantile(0.99, "p99")].join("   ")
}

fn join_or_none(all: impl Iterator<Item = String>) -> String {
    let all: Vec<_> = all.collect();
    if all.is_empty() { "none".to_owned() } else { all.join("   ") }
}
