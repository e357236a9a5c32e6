//! Performance targets relative to simpler servers.

use std::collections::HashMap;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::measure::BenchMeasurement;
use crate::subjects::{
    FLOOR, FLOOR_HALF, FULL, FULL_H2, FULL_H3, FULL_HALF, MALFORMED_KEY, NGINX, NO_KEY, PAUSED_KEY_FLOODED, STATIC,
    STATIC_H2, STATIC_H3,
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
    /// Limit of the ratio; none if it is only reported.
    pub(crate) bound: Option<TargetBound>,
    pub(crate) is_met: bool,
}

#[derive(Clone, Copy, Serialize)]
pub(crate) enum TargetBound {
    AtMost(f64),
    AtLeast(f64),
}

impl PerformanceTarget {
    pub(crate) fn new(name: impl Into<String>, values: [f64; 2], bound: Option<TargetBound>) -> Self {
        let ratio = values[0] / values[1];
        let is_met = match bound {
            Some(TargetBound::AtMost(most)) => ratio <= most,
            Some(TargetBound::AtLeast(least)) => ratio >= least,
            None => true,
        };
        Self { name: name.into(), values, ratio, bound, is_met }
    }

    /// `met`, `missed` or, without a limit, `no limit`.
    pub(crate) const fn status(&self) -> &'static str {
        match (self.bound, self.is_met) {
            (None, _) => "no limit",
            (Some(_), true) => "met",
            (Some(_), false) => "missed",
        }
    }

    /// The limit as text.
    pub(crate) fn bound_text(&self) -> String {
        match self.bound {
            Some(TargetBound::AtMost(most)) => format!("≤ {most}"),
            Some(TargetBound::AtLeast(least)) => format!("≥ {least}"),
            None => String::new(),
        }
    }
}

pub(crate) fn evaluate_targets(rows: &HashMap<&str, BenchMeasurement>) -> Result<Vec<PerformanceTarget>> {
    let measurement = |name: &str| rows.get(name).with_context(|| format!("no figures of {name}"));
    let (full, floor, plain) = (measurement(FULL)?, measurement(FLOOR)?, measurement(STATIC)?);
    let most = |bound| Some(TargetBound::AtMost(bound));
    let mut targets = vec![
        PerformanceTarget::new("server CPU (µs), full : floor", [full.server_us, floor.server_us], most(1.25)),
        PerformanceTarget::new(
            "requests per second, full : floor",
            [full.per_s, floor.per_s],
            Some(TargetBound::AtLeast(0.85)),
        ),
        PerformanceTarget::new(
            "p99 at half capacity (µs), full : floor",
            [measurement(FULL_HALF)?.p99_us, measurement(FLOOR_HALF)?.p99_us],
            most(1.5),
        ),
        PerformanceTarget::new("Redis CPU (µs), full : floor", [full.redis_us, floor.redis_us], most(0.75)),
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
            most(1.1),
        ));
        targets.push(PerformanceTarget::new(
            format!("Redis calls per request, {name}"),
            [refusal.redis_calls, 1.0],
            most(REDIS_CALLS_MAX),
        ));
    }
    targets.push(PerformanceTarget::new(
        "server CPU (µs) over TLS and HTTP/2, full : static",
        [measurement(FULL_H2)?.server_us, measurement(STATIC_H2)?.server_us],
        most(1.5),
    ));
    targets.push(PerformanceTarget::new(
        "server CPU (µs) over HTTP/3, full : static",
        [measurement(FULL_H3)?.server_us, measurement(STATIC_H3)?.server_us],
        None,
    ));
    Ok(targets)
}
