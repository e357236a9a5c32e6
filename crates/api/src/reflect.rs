//! What a visitor of the pages is told of itself: a whole answer, uncharged, for a page for people is no call of the API.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use domain::{Client, Scope, View};
use geo::Shelf;
use serde_json::Value;

use crate::projection::{Told, answer};

/// A client's own answer, written to be read; no `Debug`, because it holds the address.
pub struct Reflection {
    /// The answer that a key of scope `full` would get, as indented JSON.
    pub json: String,
    /// How far off the place may be, if the database says so.
    pub accuracy_km: Option<u16>,
    /// How long it took to find and write.
    pub took: Duration,
}

/// Locates a client and writes its answer; `None` if that cannot be written.
#[must_use]
pub fn reflect(shelf: &Shelf, client: &Client) -> Option<Reflection> {
    let started = Instant::now();
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let atlas = shelf.current();
    let facts = atlas.locate(client.address, i64::try_from(now_s).unwrap_or(i64::MAX));
    let view = View::Scope(Scope::Full);
    let answer: Value = serde_json::from_slice(&answer(client, &Told::write(&facts, view), view)).ok()?;
    let json = serde_json::to_string_pretty(&answer).ok()?;
    Some(Reflection { json, accuracy_km: facts.place.accuracy_km, took: started.elapsed() })
}
