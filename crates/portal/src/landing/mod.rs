//! The landing page: the visitor's own answer, uncharged, as a picture and as JSON. Nothing of it is kept, by us or by a cache.

mod map;
mod sight;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use domain::Client;

pub(crate) use sight::{Shown, Sight};

use crate::Portal;
use crate::docs::highlighted;
use crate::page::{Visitor, show};
use crate::problem::Problem;
use crate::view::{LandingPage, Tab};

const TITLE: &str = "Ipseity: who you are on the network";
const SENTENCE: &str = "One GET returns the caller's own IP address, place, network operator and connection. Exact limits, keys revoked on the \
    next request, round-trip time and TLS measured at first hand, nothing stored.";

/// A client's own answer; no `Debug`, because it holds the address.
pub struct Reflection {
    /// The whole answer as indented JSON.
    pub json: String,
    /// How far off the place may be, if that is known.
    pub accuracy_km: Option<u16>,
    /// How long it took to find and write.
    pub took: Duration,
}

pub(crate) async fn landing(
    State(portal): State<Arc<Portal>>,
    visitor: Visitor,
    Extension(client): Extension<Client>,
) -> Result<Response, Problem> {
    let reflection = portal.surroundings.reflect(&client).ok_or(Problem::Outage)?;
    let sight = Sight::of(&reflection).ok_or(Problem::Outage)?;
    let frame = visitor.public_frame(&portal, TITLE, Tab::None, SENTENCE, "/");
    Ok(show(&LandingPage {
        frame,
        base_url: &portal.settings.base_url,
        map: sight.map(),
        json: highlighted(&reflection.json, "json"),
        took: duration(reflection.took),
        sight: sight.shown(),
        attributions: portal.surroundings.attributions(),
    }))
}

/// A short time as people write it.
fn duration(took: Duration) -> String {
    let us = took.as_micros();
    if us < 1_000 { format!("{} µs", us.max(1)) } else { format!("{:.1} ms", took.as_secs_f64() * 1e3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_its_own_unit() {
        assert_eq!(duration(Duration::from_nanos(10)), "1 µs");
        assert_eq!(duration(Duration::from_micros(42)), "42 µs");
        assert_eq!(duration(Duration::from_micros(2_350)), "2.4 ms");
    }
}
