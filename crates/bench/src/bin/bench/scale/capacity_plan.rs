//! Computes the capacity for a large load from the measurements.
//!
//! Prices are assumptions; replace them with yours.

use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;

use super::key_memory::KeyMemory;
use super::report::ScaleRow;

/// Ten billion per day.
const REQUESTS_PER_DAY: f64 = 1e10;
const PEAK_PER_S: f64 = 500_000.0;
const KEYS: f64 = 1e6;
const SITES: f64 = 30.0;
/// Busier cores could not take over the load of a failed neighbor.
const CORE_UTILIZATION_MAX: f64 = 0.6;
/// More would pause a key.
const REQUESTS_PER_KEY_AND_SECOND_MAX: f64 = 5.0;
const USAGE_DAYS: f64 = 400.0;
/// Per month.
const DOLLARS_PER_CORE: f64 = 30.0;
const DOLLARS_PER_GIB: f64 = 4.0;
const GIB: f64 = 1_073_741_824.0;

#[derive(Serialize)]
pub(super) struct CapacityPlan {
    pub(super) node_cores: f64,
    pub(super) node_gib: f64,
    pub(super) shards: f64,
    pub(super) redis_gib: f64,
    pub(super) postgres_cores: f64,
    pub(super) postgres_gib: f64,
    pub(super) dollars_per_month: f64,
}

impl CapacityPlan {
    /// Uses the run with a million keys at the maximum rate, because nodes are busy at peak.
    pub(super) fn new(large_run: &ScaleRow, memory: &KeyMemory) -> Self {
        let cores = |us: f64| (PEAK_PER_S * us / 1e6 / CORE_UTILIZATION_MAX).ceil();
        let node_cores = cores(large_run.measurement.server_us).max(2.0 * SITES);
        let shards = cores(large_run.measurement.redis_us);
        let postgres_cores = cores(large_run.measurement.postgres_us);
        // A node with four cores has one copy of the databases in memory.
        let node_gib = (node_cores / 4.0).ceil() * large_run.node_bytes as f64 / GIB;
        let bursting_keys = PEAK_PER_S / REQUESTS_PER_KEY_AND_SECOND_MAX;
        // Twice, because every shard has a replica.
        let redis_gib = 2.0 * (KEYS * memory.idle_bytes + bursting_keys * memory.burst_bytes) / GIB;
        let day_bytes = memory.postgres_bytes_day - memory.postgres_bytes;
        let postgres_gib = KEYS * (memory.postgres_bytes + USAGE_DAYS * day_bytes) / GIB;
        let dollars_per_month =
            DOLLARS_PER_CORE * (node_cores + 2.0 * shards + postgres_cores) + DOLLARS_PER_GIB * (node_gib + redis_gib);
        Self { node_cores, node_gib, shards, redis_gib, postgres_cores, postgres_gib, dollars_per_month }
    }

    pub(super) fn markdown(&self) -> Result<String> {
        let Self { node_cores, node_gib, shards, redis_gib, postgres_cores, postgres_gib, dollars_per_month } = self;
        let mean = REQUESTS_PER_DAY / 86_400.0;
        let mut text = format!(
            "One million keys, {mean:.0} requests per second on average and {PEAK_PER_S:.0} at peak, {SITES} sites, cores {:.0} % busy at peak:\n\n",
            CORE_UTILIZATION_MAX * 100.0
        );
        writeln!(text, "| Part | Needs |\n|---|---|")?;
        writeln!(
            text,
            "| Nodes | {node_cores:.0} cores, {:.0} per site; {node_gib:.0} GiB with four cores per node |",
            (node_cores / SITES).ceil()
        )?;
        writeln!(text, "| Redis | {shards:.0} shards of one core, each with a replica; {redis_gib:.1} GiB in total |")?;
        writeln!(
            text,
            "| PostgreSQL, usage flushed every 2 s | {postgres_cores:.0} cores; {postgres_gib:.0} GiB of disk with {USAGE_DAYS:.0} days of usage |"
        )?;
        writeln!(
            text,
            "| Cost | {dollars_per_month:.0} dollars per month, at {DOLLARS_PER_CORE:.0} per core and {DOLLARS_PER_GIB:.0} per GiB of memory: {:.3} per million requests |",
            dollars_per_month / (REQUESTS_PER_DAY * 30.0 / 1e6)
        )?;
        Ok(text)
    }
}
