//! What a visitor of the pages is told of itself: a whole answer, uncharged, for a page for people is no call of the API.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ipseity_domain::{Client, FieldSet, Scope};
use ipseity_geo::AtlasReloader;
use serde_json::Value;

use crate::lookup::render::{RenderedFacts, render_body};

/// A client's own answer, written to be read; no `Debug`, because it holds the address.
pub struct SelfLookup {
    /// The answer that a key of scope `full` would get, as indented JSON.
    pub json: String,
    /// How far off the place may be, if the database says so.
    pub accuracy_km: Option<u16>,
    /// How long it took to find and write.
    pub elapsed: Duration,
}

/// Locates a client and writes its answer; `None` if that cannot be written.
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
