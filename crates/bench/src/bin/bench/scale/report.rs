//! Prints the results as a table and writes the files for the documentation.

use std::fmt::Write as _;
use std::fs;

use anyhow::Result;
use serde::Serialize;

use super::capacity_plan::CapacityPlan;
use super::key_memory::KeyMemory;
use crate::measure::BenchMeasurement;
use crate::report::{print_targets, replace_section, targets_markdown};
use crate::targets::PerformanceTarget;

const JSON_FILE: &str = "docs/scale.json";
const PAGE_FILE: &str = "docs/scale.md";
const MIB: f64 = 1_048_576.0;

#[derive(Serialize)]
pub(super) struct ScaleRow {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) measurement: BenchMeasurement,
    /// Memory of a node, and of all Redis servers.
    pub(super) node_bytes: u64,
    pub(super) redis_bytes: u64,
}

#[derive(Serialize)]
pub(super) struct ScaleReport {
    pub(super) date: String,
    pub(super) processor: String,
    pub(super) cores: usize,
    pub(super) per_s: f64,
    pub(super) seconds: usize,
    pub(super) rounds: usize,
    pub(super) rows: Vec<ScaleRow>,
    pub(super) key_memory: KeyMemory,
    pub(super) capacity_plan: CapacityPlan,
    pub(super) targets: Vec<PerformanceTarget>,
}

impl ScaleReport {
    #[expect(clippy::print_stdout, reason = "a report is printed")]
    pub(super) fn print(&self) {
        println!(
            "{:32} {:>8} {:>8} {:>8} {:>10} {:>9} {:>9} {:>9} {:>9} {:>10}",
            "",
            "per s",
            "p50 ms",
            "p99 ms",
            "server µs",
            "Redis µs",
            "Postgr µs",
            "node MiB",
            "Redis MiB",
            "unexpected"
        );
        for row in &self.rows {
            let BenchMeasurement { per_s, p50_us, p99_us, server_us, redis_us, postgres_us, unexpected, .. } =
                row.measurement;
            let (p50_ms, p99_ms) = (p50_us / 1e3, p99_us / 1e3);
            let (node, redis) = (row.node_bytes as f64 / MIB, row.redis_bytes as f64 / MIB);
            println!(
                "{:32} {per_s:8.0} {p50_ms:8.2} {p99_ms:8.2} {server_us:10.1} {redis_us:9.1} {postgres_us:9.1} {node:9.0} {redis:9.0} {unexpected:10}",
                row.name
            );
        }
        println!("\n{}\n", self.key_memory.summary());
        print_targets(&self.targets);
    }

    pub(super) fn write(&self) -> Result<()> {
        fs::write(JSON_FILE, serde_json::to_string_pretty(self)? + "\n")?;
        replace_section(PAGE_FILE, "measured", &self.markdown()?)?;
        replace_section(PAGE_FILE, "computed", &self.capacity_plan.markdown()?)
    }

    fn markdown(&self) -> Result<String> {
        let mut text = format!(
            "{}, {} with {} cores, {:.0} requests per second for {} s unless noted, plain HTTP/1.1.\n\
             The first four rows are medians of {} rounds.\n\n",
            self.date, self.processor, self.cores, self.per_s, self.seconds, self.rounds
        );
        text += "| | Requests/s | p99 ms | Node CPU µs | Redis CPU µs | PostgreSQL CPU µs | Node memory MiB | Redis memory MiB |\n|---|--:|--:|--:|--:|--:|--:|--:|\n";
        for row in &self.rows {
            let BenchMeasurement { per_s, p99_us, server_us, redis_us, postgres_us, .. } = row.measurement;
            let (name, p99_ms) = (&row.name, p99_us / 1e3);
            let (node, redis) = (row.node_bytes as f64 / MIB, row.redis_bytes as f64 / MIB);
            writeln!(
                text,
                "| {name} | {per_s:.0} | {p99_ms:.2} | {server_us:.1} | {redis_us:.1} | {postgres_us:.1} | {node:.0} | {redis:.0} |"
            )?;
        }
        writeln!(text, "\n{}\n", self.key_memory.summary())?;
        text += &targets_markdown(&self.targets)?;
        Ok(text)
    }
}
