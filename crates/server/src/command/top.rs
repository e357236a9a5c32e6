//! `ipseity top`: a running node at a glance, from its metrics.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;

use super::reading::Reading;
use super::{private, show};
use crate::config::Config;

/// From the top left corner, over what was there.
const CLEAR: &str = "\x1b[H\x1b[2J";
const DAY_S: f64 = 86_400.0;

#[derive(Args)]
pub(super) struct Top {
    /// The private listener of the node; the one of the settings if it is left out.
    #[arg(long, value_name = "ADDRESS")]
    node: Option<SocketAddr>,
    /// Seconds between two looks.
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    interval_s: u64,
    /// Print one view and end.
    #[arg(long)]
    once: bool,
}

impl Top {
    pub(super) async fn run(&self, config: &Config) -> Result<()> {
        let node = self.node.unwrap_or(config.ops.listen);
        let mut before = Reading::parse(&private::ask(node, "/metrics").await?);
        loop {
            tokio::time::sleep(Duration::from_secs(self.interval_s)).await;
            let now = Reading::parse(&private::ask(node, "/metrics").await?);
            let clear = if std::io::stdout().is_terminal() && !self.once { CLEAR } else { "" };
            show::line(&format!("{clear}{}", view(&before, &now, node)))?;
            if self.once {
                return Ok(());
            }
            before = now;
        }
    }
}

fn view(before: &Reading, now: &Reading, node: SocketAddr) -> String {
    let span_s = now.at.duration_since(before.at).as_secs_f64();
    let rate = |name: &str, label: Option<(&str, &str)>| (now.sum(name, label) - before.sum(name, label)) / span_s;
    let gauge = |name: &str| now.sum(name, None);
    let clock_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let version = now.of("ipseity_build_info").next().map_or("", |build| build.label("version"));

    let verdicts = if gauge("ipseity_recalling") > 0.0 {
        format!(
            "from memory, for the counter store is away; {} admitted wait to be settled",
            gauge("ipseity_unsettled")
        )
    } else {
        format!(
            "{:.1}/s by the counter store   {}",
            rate("ipseity_verdict_seconds_count", None),
            quantiles(before, now, "ipseity_verdict_seconds")
        )
    };
    let chore = |name: &str| {
        let failed = rate(name, Some(("outcome", "failed")));
        format!("{:.1}/s, {failed:.1}/s failed", rate(name, Some(("outcome", "done"))))
    };
    let rows = [
        ("answers", outcomes(before, now, span_s)),
        ("latency", quantiles(before, now, "ipseity_answer_seconds")),
        ("verdicts", verdicts),
        (
            "stores",
            format!(
                "roll-ups {}   relays {}   fills {:.1}/s",
                chore("ipseity_rollups_total"),
                chore("ipseity_relays_total"),
                rate("ipseity_fills_total", None)
            ),
        ),
        (
            "connections",
            format!(
                "{} open of {}   {:.1}/s new   {:.1}/s closed by bounds",
                gauge("ipseity_connections_open"),
                gauge("ipseity_connections_max"),
                rate("ipseity_connections_accepted_total", None),
                rate("ipseity_connections_closed_total", None)
            ),
        ),
        (
            "process",
            format!(
                "{:.0} MB   {} files of {}",
                gauge("ipseity_memory_bytes") / 1e6,
                gauge("ipseity_files_open"),
                gauge("ipseity_files_max")
            ),
        ),
        (
            "geo data",
            listed(now.of("ipseity_geo_build_time_seconds").map(|built| {
                #[expect(clippy::cast_precision_loss, reason = "days")]
                let days = (clock_s as f64 - built.value) / DAY_S;
                format!("{} of {days:.0} days", built.label("database"))
            })),
        ),
        (
            "certificates",
            listed(
                now.of("ipseity_certificate_days_left")
                    .map(|left| format!("{} for {} more days", left.label("name"), left.value)),
            ),
        ),
    ];
    let head = format!("ipseity {version}   {node}   {} UTC\n", show::time(i64::try_from(clock_s).unwrap_or(i64::MAX)));
    let rows = rows.into_iter().map(|(name, says)| format!("{name:<14}{says}"));
    [head].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

/// Answers a second, and of which outcomes; the most frequent first.
fn outcomes(before: &Reading, now: &Reading, span_s: f64) -> String {
    let mut names: Vec<&str> = now.of("ipseity_answers_total").map(|series| series.label("outcome")).collect();
    names.sort_unstable();
    names.dedup();
    let rate = |label| (now.sum("ipseity_answers_total", label) - before.sum("ipseity_answers_total", label)) / span_s;
    let mut rates: Vec<_> = names.into_iter().map(|name| (name, rate(Some(("outcome", name))))).collect();
    rates.retain(|(_, rate)| *rate > 0.0);
    rates.sort_by(|a, b| b.1.total_cmp(&a.1));
    let each = rates.iter().map(|(name, rate)| format!("   {name} {rate:.1}"));
    format!("{:.1}/s{}", rate(None), each.collect::<String>())
}

fn quantiles(before: &Reading, now: &Reading, name: &str) -> String {
    let shown = |share: f64, called: &str| {
        let time = now.quantile(before, name, share);
        format!("{called} {}", time.map_or_else(|| "–".to_owned(), |time| format!("{:.1} ms", time * 1000.0)))
    };
    [shown(0.5, "p50"), shown(0.9, "p90"), shown(0.99, "p99")].join("   ")
}

fn listed(all: impl Iterator<Item = String>) -> String {
    let all: Vec<_> = all.collect();
    if all.is_empty() { "none".to_owned() } else { all.join("   ") }
}
