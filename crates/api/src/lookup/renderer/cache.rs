//! The render cache: the JSON of geo records that were requested recently. Clients of one network share a record, so
//! most lookups hit the cache.
//!
//! The cache key is the position of the record in the databases, never the client's address.

use std::sync::Arc;

use ipseity_domain::{Address, FieldSet};
use ipseity_geo::{Atlas, RecordKey};
use ipseity_ledger::LedgerTime;
use quick_cache::sync::Cache;

use crate::lookup::renderer::body::RenderedFacts;

/// Entries expire with the quarter of an hour: time zones change their offset only on these boundaries.
const QUARTER_HOUR_S: u64 = 900;

/// Rendered facts by record and field set, each with the quarter of an hour in which it is valid.
pub(super) struct RenderCache(Cache<(RecordKey, FieldSet), (u64, Arc<RenderedFacts>)>);

impl RenderCache {
    pub(super) fn new(entries_max: usize) -> Self {
        Self(Cache::new(entries_max))
    }

    /// The rendered facts about an address at a time, from the cache if possible.
    pub(super) fn get_or_render(
        &self,
        atlas: &Atlas,
        address: Address,
        field_set: FieldSet,
        now: LedgerTime,
    ) -> Arc<RenderedFacts> {
        let render = || {
            Arc::new(RenderedFacts::render(
                &atlas.locate(address, i64::try_from(now.as_secs()).unwrap_or(i64::MAX)),
                field_set,
            ))
        };
        let Some(record_key) = atlas.record_key(address) else { return render() };
        let quarter_hour = now.as_secs() / QUARTER_HOUR_S;
        if let Some((_, rendered)) =
            self.0.get(&(record_key, field_set)).filter(|(rendered_in, _)| *rendered_in == quarter_hour)
        {
            return rendered;
        }
        let rendered = render();
        self.0.insert((record_key, field_set), (quarter_hour, Arc::clone(&rendered)));
        rendered
    }
}
