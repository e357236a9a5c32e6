//! What was told of records lately, written out: most callers come from networks that others came from before.
//!
//! Kept by where the databases tell of an address, never by the address.

use std::sync::Arc;

use domain::{Address, View};
use geo::{Atlas, Spot};
use ledger::Moment;
use quick_cache::sync::Cache;

use crate::projection::Told;

/// Time zones change their offset at full quarters of an hour, and at no other time.
const QUARTER_S: u64 = 900;

/// Texts that were written lately, each with the quarter of an hour that it holds for.
pub(crate) struct Memory(Cache<(Spot, View), (u64, Arc<Told>)>);

impl Memory {
    pub(crate) fn new(texts_max: usize) -> Self {
        Self(Cache::new(texts_max))
    }

    /// What is told of an address now.
    pub(crate) fn find(&self, atlas: &Atlas, address: Address, view: View, now: Moment) -> Arc<Told> {
        let write = || Arc::new(Told::write(&atlas.locate(address, i64::try_from(now.s()).unwrap_or(i64::MAX)), view));
        let Some(spot) = atlas.spot(address) else { return write() };
        let quarter = now.s() / QUARTER_S;
        if let Some((_, told)) = self.0.get(&(spot, view)).filter(|(written, _)| *written == quarter) {
            return told;
        }
        let told = write();
        self.0.insert((spot, view), (quarter, Arc::clone(&told)));
        told
    }
}
