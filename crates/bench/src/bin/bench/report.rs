//! Prints the results as a table and writes the files for the documentation.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::chart;
use crate::measure::BenchMeasurement;
use crate::profile::{Profile, REST};
use crate::targets::PerformanceTarget;

const JSON_FILE: &str = "docs/bench.json";
const CHART_FILE: &str = "docs/bench.svg";
const PAGE_FILE: &str = "docs/bench.md";

/// Results of a subject.
#[derive(Serialize)]
pub(crate) struct SubjectRow {
    pub(crate) name: &'static str,
    #[serde(flatten)]
    pub(crate) measurement: BenchMeasurement,
}

#[derive(Serialize)]
pub(crate) struct CompareReport {
    pub(crate) date: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) keys: usize,
    pub(crate) rounds: usize,
    pub(crate) seconds: u64,
    pub(crate) rows: Vec<SubjectRow>,
    /// Instructions per request, where they were counted.
    pub(crate) instructions: BTreeMap<&'static str, f64>,
    pub(crate) targets: Vec<PerformanceTarget>,
    pub(crate) profiles: BTreeMap<&'static str, Profile>,
}

impl CompareReport {
    /// Subjects with unexpected responses.
    pub(crate) fn failed_count(&self) -> usize {
        self.rows.iter().filter(|row| row.measurement.unexpected > 0).count()
    }

    #[expect(clippy::print_stdout, reason = "a report is printed")]
    pub(crate) fn print(&self) {
        println!(
            "{:32} {:>8} {:>8} {:>8} {:>10} {:>12} {:>9} {:>9} {:>7} {:>10}",
            "subject",
            "per s",
            "p50 ms",
            "p99 ms",
            "server µs",
            "instructions",
            "Redis µs",
            "Postgr µs",
            "calls",
            "unexpected"
        );
        for SubjectRow { name, measurement: figures } in &self.rows {
            let BenchMeasurement { per_s, p50_us, p99_us, server_us, redis_us, postgres_us, redis_calls, unexpected } =
                figures;
            let (p50_ms, p99_ms, instructions) = (p50_us / 1e3, p99_us / 1e3, self.instructions_of(name));
            println!(
                "{name:32} {per_s:8.0} {p50_ms:8.2} {p99_ms:8.2} {server_us:10.1} {instructions:>12} {redis_us:9.1} {postgres_us:9.1} {redis_calls:7.3} {unexpected:10}"
            );
        }
        println!();
        print_targets(&self.targets);
        for (name, parts) in &self.profiles {
            println!("\n{name}:");
            parts.iter().for_each(|(part, share)| println!("{share:5.1}%  {part}"));
        }
        println!("\n{} subjects, {} failed", self.rows.len(), self.failed_count());
    }

    /// Instructions of a subject, or an empty text if they were not counted.
    fn instructions_of(&self, name: &str) -> String {
        self.instructions.get(name).map(|count| format!("{count:.0}")).unwrap_or_default()
    }

    /// Writes the JSON, the chart and the tables of the page.
    pub(crate) fn write(&self) -> Result<()> {
        fs::write(JSON_FILE, serde_json::to_string_pretty(self)? + "\n")?;
        fs::write(CHART_FILE, chart::render_svg(&self.rows))?;
        replace_section(PAGE_FILE, "figures", &self.markdown()?)?;
        replace_section(PAGE_FILE, "profile", &self.profile_markdown())
    }

    /// A table with a column for each profile, in the order of the first.
    fn profile_markdown(&self) -> String {
        let mut parts: Vec<&str> = Vec::new();
        for (part, _) in self.profiles.values().flatten() {
            if part != REST && !parts.contains(&part.as_str()) {
                parts.push(part);
            }
        }
        parts.push(REST);
        let mut text = format!(
            "| Part | {} |\n|---{}|\n",
            self.profiles.keys().copied().collect::<Vec<_>>().join(" | "),
            "|--:".repeat(self.profiles.len())
        );
        for part in parts {
            let shares = self.profiles.values().map(|profile| {
                profile
                    .iter()
                    .find(|(name, _)| name == part)
                    .map(|(_, share)| format!("{share:.1}%"))
                    .unwrap_or_default()
            });
            text += &format!("| {part} | {} |\n", shares.collect::<Vec<_>>().join(" | "));
        }
        text
    }

    fn markdown(&self) -> Result<String> {
        let mut text = format!(
            "{}, {} with {} cores, {} keys of each scope, median of {} rounds of {} s.\n\n",
            self.date, self.processor, self.cores, self.keys, self.rounds, self.seconds
        );
        text += "| Subject | Requests/s | p50 ms | p99 ms | Server CPU µs | Instructions | Redis CPU µs | PostgreSQL CPU µs | Script calls | Unexpected |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
        for SubjectRow { name, measurement: figures } in &self.rows {
            let BenchMeasurement { per_s, p50_us, p99_us, server_us, redis_us, postgres_us, redis_calls, unexpected } =
                figures;
            let (p50_ms, p99_ms, instructions) = (p50_us / 1e3, p99_us / 1e3, self.instructions_of(name));
            writeln!(
                text,
                "| {name} | {per_s:.0} | {p50_ms:.2} | {p99_ms:.2} | {server_us:.1} | {instructions} | {redis_us:.1} | {postgres_us:.1} | {redis_calls:.3} | {unexpected} |"
            )?;
        }
        text.push('\n');
        text += &targets_markdown(&self.targets)?;
        Ok(text)
    }
}

pub(crate) fn targets_markdown(targets: &[PerformanceTarget]) -> Result<String> {
    let mut text = "| Target | Figures | Ratio | Limit | |\n|---|--:|--:|--:|---|\n".to_owned();
    for target in targets {
        let ([left, right], bound, verdict) = (target.values, target.bound_text(), target.status());
        writeln!(text, "| {} | {left:.1} : {right:.1} | {:.2} | {bound} | {verdict} |", target.name, target.ratio)?;
    }
    Ok(text)
}

/// Replaces the text between the markers of a page.
pub(crate) fn replace_section(page: &str, section: &str, text: &str) -> Result<()> {
    let old = fs::read_to_string(page)?;
    let (begin, end) = (format!("<!-- {section}: written by the tool -->\n"), format!("<!-- end of {section} -->"));
    let (before, rest) = old.split_once(&begin).with_context(|| format!("{page} has no section {section}"))?;
    let (_, after) = rest.split_once(&end).with_context(|| format!("{page} has no end of section {section}"))?;
    Ok(fs::write(page, format!("{before}{begin}\n{text}\n{end}{after}"))?)
}

#[expect(clippy::print_stdout, reason = "a report is printed")]
pub(crate) fn print_targets(targets: &[PerformanceTarget]) {
    for target in targets {
        let ([left, right], bound) = (target.values, target.bound_text());
        println!(
            "{:8} {:56} {left:>10.2} : {right:<10.2} = {:6.3} {bound}",
            target.status(),
            target.name,
            target.ratio
        );
    }
}
