//! Performance targets relative to simpler servers.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::measure::BenchMeasurement;
use crate::subjects::{
    ALTERNATIVE, FLOOR, FLOOR_HALF, FULL, FULL_H2, FULL_H3, FULL_HALF, MALFORMED_KEY, NGINX, NO_KEY,
    PAUSED_KEY_FLOODED, STATIC, STATIC_H2, STATIC_H3,
};

/// Redis calls per rejection. A rejection is cached for a second after a hundred of them.
const REDIS_CALLS_MAX: f64 = 0.01;

/// A target and its result.
#[derive(Serialize)]
pub(crate) struct PerformanceTarget {
    pub(crate) name: String,
    /// The compared values.
    pub(crate) values: [f64; 2],
    pub(crate) ratio: f64,
    pub(crate) bound: TargetBound,
    pub(crate) is_met: bool,
}

#[derive(Clone, Copy, Serialize)]
pub(crate) enum TargetBound {
    AtMost(f64),
    AtLeast(f64),
}

impl PerformanceTarget {
    pub(crate) fn new(name: impl Into<String>, values: [f64; 2], bound: TargetBound) -> Self {
        let ratio = values[0] / values[1];
        let is_met = match bound {
            TargetBound::AtMost(most) => ratio <= most,
            TargetBound::AtLeast(least) => ratio >= least,
        };
        Self { name: name.into(), values, ratio, bound, is_met }
    }

    /// `met` or `missed`.
    pub(crate) const fn status(&self) -> &'static str {
        if self.is_met { "met" } else { "missed" }
    }

    /// The limit as text.
    pub(crate) fn bound_text(&self) -> String {
        match self.bound {
            TargetBound::AtMost(most) => format!("≤ {most}"),
            TargetBound::AtLeast(least) => format!("≥ {least}"),
        }
    }
}

pub(crate) fn evaluate_targets(
    rows: &HashMap<&str, BenchMeasurement>,
    instructions: &BTreeMap<&str, f64>,
) -> Result<Vec<PerformanceTarget>> {
    let measurement = |name: &str| rows.get(name).with_context(|| format!("no figures of {name}"));
    let (full, floor, plain) = (measurement(FULL)?, measurement(FLOOR)?, measurement(STATIC)?);
    let alternative = measurement(ALTERNATIVE)?;
    let most = TargetBound::AtMost;
    let mut targets = vec![
        PerformanceTarget::new(
            "CPU of node, Redis and PostgreSQL (µs), full : alternative",
            [full.server_us + full.redis_us + full.postgres_us, alternative.server_us + alternative.redis_us],
            most(0.5),
        ),
        PerformanceTarget::new(
            "requests per second, full : alternative",
            [full.per_s, alternative.per_s],
            TargetBound::AtLeast(2.0),
        ),
        PerformanceTarget::new("server CPU (µs), full : floor", [full.server_us, floor.server_us], most(1.35)),
        PerformanceTarget::new("Redis CPU (µs), full : floor", [full.redis_us, floor.redis_us], most(0.7)),
        PerformanceTarget::new("PostgreSQL CPU per request (µs)", [full.postgres_us, 1.0], most(4.0)),
        PerformanceTarget::new(
            "p99 at half capacity (µs), full : floor",
            [measurement(FULL_HALF)?.p99_us, measurement(FLOOR_HALF)?.p99_us],
            most(1.5),
        ),
        PerformanceTarget::new(
            "server and Redis CPU (µs), full : nginx",
            [full.server_us + full.redis_us, measurement(NGINX)?.server_us],
            most(2.0),
        ),
    ];
    for name in [NO_KEY, MALFORMED_KEY, PAUSED_KEY_FLOODED] {
        let refusal = measurement(name)?;
        targets.push(PerformanceTarget::new(
            format!("server CPU (µs), {name} : static"),
            [refusal.server_us, plain.server_us],
            most(1.2),
        ));
        targets.push(PerformanceTarget::new(
            format!("Redis calls per request, {name}"),
            [refusal.redis_calls, 1.0],
            most(REDIS_CALLS_MAX),
        ));
    }
    for (protocol, full, plain, bound) in
        [("TLS and HTTP/2", FULL_H2, STATIC_H2, 1.8), ("HTTP/3", FULL_H3, STATIC_H3, 2.2)]
    {
        targets.push(PerformanceTarget::new(
            format!("server CPU (µs) over {protocol}, full : static"),
            [measurement(full)?.server_us, measurement(plain)?.server_us],
            most(bound),
        ));
    }
    // The short run counts none.
    if let (Some(full), Some(floor)) = (instructions.get(FULL), instructions.get(FLOOR)) {
        targets.push(PerformanceTarget::new("instructions, full : floor", [*full, *floor], most(1.25)));
    }
    Ok(targets)
}
