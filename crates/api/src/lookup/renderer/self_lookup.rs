//! The lookup that the landing page does for its visitor. It is the only uncharged lookup, because a page
//! view is not an API call.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ipseity_domain::{Client, FieldSet, Scope};
use ipseity_geo::AtlasReloader;
use serde_json::Value;

use crate::lookup::renderer::body::{RenderedFacts, render_body};

/// The result of [`self_lookup`]. It has no `Debug`, because it contains the client's address.
pub struct SelfLookup {
    /// The response that a key of scope `full` gets, as indented JSON.
    pub json: String,
    /// Accuracy radius of the location, if the database has one.
    pub accuracy_km: Option<u16>,
    /// Duration of the lookup.
    pub elapsed: Duration,
}

/// Locates a client and renders its data, uncharged. Returns `None` if rendering fails.
#[must_use]
pub fn self_lookup(atlas_reloader: &AtlasReloader, client: &Client) -> Option<SelfLookup> {
    let started = Instant::now();
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let atlas = atlas_reloader.current();
    let facts = atlas.locate(client.address, i64::try_from(now_s).unwrap_or(i64::MAX));
    let field_set = FieldSet::Scope(Scope::Full);
    let body: Value =
        serde_json::from_slice(&render_body(client, &RenderedFacts::render(&facts, field_set), field_set)).ok()?;
    let json = serde_json::to_string_pretty(&body).ok()?;
    Some(SelfLookup { json, accuracy_km: facts.location.accuracy_km, elapsed: started.elapsed() })
}
