//! What was told of records lately, written out: most callers come from networks that others came from before.
//!
//! Kept by where the databases tell of an address, never by the address.

use std::sync::Arc;

use ipseity_domain::{Address, FieldSet};
use ipseity_geo::{Atlas, RecordKey};
use ipseity_ledger::LedgerTime;
use quick_cache::sync::Cache;

use crate::lookup::render::RenderedFacts;

/// Time zones change their offset at full quarters of an hour, and at no other time.
const QUARTER_HOUR_S: u64 = 900;

/// Texts that were written lately, each with the quarter of an hour that it holds for.
pub(crate) struct RenderCache(Cache<(RecordKey, FieldSet), (u64, Arc<RenderedFacts>)>);

impl RenderCache {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self(Cache::new(entries_max))
    }

    /// What is told of an address now.
    pub(crate) fn get_or_render(
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
