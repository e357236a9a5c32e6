//! What the service wants to be held to, in relation to the servers that do less.

use std::collections::HashMap;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::measure::Figures;
use crate::subjects::{
    FLOODED, FLOOR, FLOOR_HALF, FULL, FULL_H2, FULL_H3, FULL_HALF, MALFORMED, MISSING, NGINX, STATIC, STATIC_H2,
    STATIC_H3,
};

/// Calls for each refusal: a flood is remembered for a second at a time, and asks a hundred times before.
const CALLS_MAX: f64 = 0.01;

/// A bar, and where it was met or missed.
#[derive(Serialize)]
pub(crate) struct Bar {
    pub(crate) name: String,
    /// What is held against what.
    pub(crate) figures: [f64; 2],
    pub(crate) ratio: f64,
    /// The bound of the ratio; none if it is only told.
    pub(crate) bound: Option<Bound>,
    pub(crate) is_met: bool,
}

#[derive(Clone, Copy, Serialize)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bar {
    pub(crate) fn new(name: impl Into<String>, figures: [f64; 2], bound: Option<Bound>) -> Self {
        let ratio = figures[0] / figures[1];
        let is_met = match bound {
            Some(Bound::AtMost(most)) => ratio <= most,
            Some(Bound::AtLeast(least)) => ratio >= least,
            None => true,
        };
        Self { name: name.into(), figures, ratio, bound, is_met }
    }

    /// `met`, `missed` or, without a bound, `told`.
    pub(crate) const fn verdict(&self) -> &'static str {
        match (self.bound, self.is_met) {
            (None, _) => "told",
            (Some(_), true) => "met",
            (Some(_), false) => "missed",
        }
    }

    /// The bound as text.
    pub(crate) fn bound_text(&self) -> String {
        match self.bound {
            Some(Bound::AtMost(most)) => format!("≤ {most}"),
            Some(Bound::AtLeast(least)) => format!("≥ {least}"),
            None => String::new(),
        }
    }
}

pub(crate) fn judge(rows: &HashMap<&str, Figures>) -> Result<Vec<Bar>> {
    let of = |name: &str| rows.get(name).with_context(|| format!("no figures of {name}"));
    let (full, floor, plain) = (of(FULL)?, of(FLOOR)?, of(STATIC)?);
    let most = |bound| Some(Bound::AtMost(bound));
    let mut bars = vec![
        Bar::new("server CPU (µs), full : floor", [full.server_us, floor.server_us], most(1.25)),
        Bar::new("requests a second, full : floor", [full.per_s, floor.per_s], Some(Bound::AtLeast(0.85))),
        Bar::new(
            "p99 at half of the capacity (µs), full : floor",
            [of(FULL_HALF)?.p99_us, of(FLOOR_HALF)?.p99_us],
            most(1.5),
        ),
        Bar::new("Redis CPU (µs), full : floor", [full.redis_us, floor.redis_us], most(0.75)),
        Bar::new(
            "server and Redis CPU (µs), full : nginx",
            [full.server_us + full.redis_us, of(NGINX)?.server_us],
            most(2.0),
        ),
    ];
    for name in [MISSING, MALFORMED, FLOODED] {
        let refusal = of(name)?;
        bars.push(Bar::new(
            format!("server CPU (µs), {name} : static"),
            [refusal.server_us, plain.server_us],
            most(1.1),
        ));
        bars.push(Bar::new(
            format!("Redis calls for each request, {name}"),
            [refusal.redis_calls, 1.0],
            most(CALLS_MAX),
        ));
    }
    bars.push(Bar::new(
        "server CPU (µs) over TLS and HTTP/2, full : static",
        [of(FULL_H2)?.server_us, of(STATIC_H2)?.server_us],
        most(1.5),
    ));
    bars.push(Bar::new(
        "server CPU (µs) over HTTP/3, full : static",
        [of(FULL_H3)?.server_us, of(STATIC_H3)?.server_us],
        None,
    ));
    Ok(bars)
}
