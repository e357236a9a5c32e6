//! The lookups that the landing page does for its visitor. They are the only uncharged lookups, because a page
//! view is not an API call.

use std::time::{Duration, Instant};

use http::HeaderMap;
use ipseity_domain::{Client, FieldSet, GeoFacts, Scope};
use ipseity_geo::AtlasReloader;
use serde_json::Value;

use crate::lookup::renderer::body::{RenderedFacts, render_body};
use crate::pairing::{Pairing, paired_address};
use crate::wall_clock::wall_clock;

/// The result of [`self_lookup`]. It has no `Debug`, because it contains the client's address.
pub struct SelfLookup {
    /// The response that a key of scope `full` gets, as indented JSON.
    pub json: String,
    /// Accuracy radius of the location, if the database has one.
    pub accuracy_km: Option<u16>,
    /// Duration of the lookup.
    pub elapsed: Duration,
}

/// Renders both addresses of a client that sent a token of its other connection, uncharged, as JSON. Returns `None` if no token
/// can be used.
#[must_use]
pub fn paired_self_lookup(pairing: &Pairing, client: &Client, headers: &HeaderMap) -> Option<Vec<u8>> {
    let paired_address = paired_address(Some(pairing), client, headers)?.ok()?;
    let field_set = FieldSet::Scope(Scope::Ip);
    let no_facts = RenderedFacts::render(&GeoFacts::default(), field_set);
    Some(render_body(client, Some(paired_address), &no_facts, field_set))
}

/// Locates a client and renders its data, uncharged. Returns `None` if rendering fails.
#[must_use]
pub fn self_lookup(atlas_reloader: &AtlasReloader, client: &Client) -> Option<SelfLookup> {
    let started = Instant::now();
    let now_s = wall_clock().as_secs();
    let atlas = atlas_reloader.current();
    let facts = atlas.locate(client.address, i64::try_from(now_s).unwrap_or(i64::MAX));
    let field_set = FieldSet::Scope(Scope::Full);
    let body: Value =
        serde_json::from_slice(&render_body(client, None, &RenderedFacts::render(&facts, field_set), field_set))
            .ok()?;
    let json = serde_json::to_string_pretty(&body).ok()?;
    Some(SelfLookup { json, accuracy_km: facts.location.accuracy_km, elapsed: started.elapsed() })
}
