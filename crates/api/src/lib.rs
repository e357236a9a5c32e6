//! The lookup API: HTTP for programs.
//!
//! Deliberately absent: sockets (the edge's), pages (the portal's), configuration (the server's). A client's address is read in one place,
//! the projection, and goes into its owner's answer only.

mod admission;
mod credentials;
mod demo;
mod dress;
mod failpoint;
mod fallback;
mod flood;
mod header_text;
mod limits;
mod links;
mod lookup;
mod meta;
mod metrics;
mod openapi;
mod operation;
mod projection;
mod recall;
mod reflect;
mod refusal;
mod request;
mod routes;
mod settle;
mod tally;
mod told;

use std::sync::Arc;

use domain::KeyId;
use geo::Shelf;
use ledger::Ledger;
use quick_cache::sync::Cache;
use store::Store;
use tokio::sync::Semaphore;

pub use dress::{Front, dress};
#[cfg(feature = "failpoints")]
pub use failpoint::arm_failpoints;
pub use fallback::FallbackBounds;
pub use links::Links;
pub use metrics::Metrics;
pub use openapi::document;
pub use reflect::{Reflection, reflect};
pub use request::RequestId;
pub use routes::router;
pub use tally::{Taken, Tally};

/// The target of spans that are for traces alone: where nobody collects them they are not even made.
pub const TRACE: &str = "trace";

/// Bounds of what the API keeps in memory and asks for at once.
#[derive(Clone, Copy, Debug)]
pub struct ApiBounds {
    /// Keys looked up in the durable store at once.
    pub lookups_max: usize,
    /// Ids remembered as unknown.
    pub unknown_max: usize,
    /// Keys remembered as refused.
    pub refused_max: usize,
    /// Places and networks whose texts are kept.
    pub told_max: usize,
    /// Going on without the counter store.
    pub fallback: FallbackBounds,
}

/// What the handlers share.
pub struct Api {
    ledger: Arc<Ledger>,
    store: Store,
    shelf: Arc<Shelf>,
    wordings: refusal::Wordings,
    tally: Arc<Tally>,
    metrics: Metrics,
    /// Ids that do not exist. They are random and never reused, so this cannot go stale; it also makes looking one up single-flight.
    unknown: Cache<KeyId, ()>,
    lookups: Semaphore,
    floods: flood::Floods,
    demo_spent: demo::SpentMemory,
    fallback: fallback::Fallback,
    documents: openapi::Documents,
    told: told::Memory,
}

impl Api {
    /// Puts the parts together.
    #[must_use]
    pub fn new(
        ledger: Arc<Ledger>,
        store: Store,
        shelf: Arc<Shelf>,
        links: Links,
        tally: Arc<Tally>,
        metrics: Metrics,
        bounds: ApiBounds,
    ) -> Self {
        Self {
            ledger,
            store,
            shelf,
            documents: openapi::Documents::new(&links),
            wordings: refusal::Wordings::new(links),
            tally,
            metrics,
            unknown: Cache::new(bounds.unknown_max),
            lookups: Semaphore::new(bounds.lookups_max),
            floods: flood::Floods::new(bounds.refused_max),
            demo_spent: demo::SpentMemory::default(),
            fallback: fallback::Fallback::new(bounds.fallback),
            told: told::Memory::new(bounds.told_max),
        }
    }
}
