//! Bringing what one store knows to the other: changes to the counter store, pauses to the durable one.

use anyhow::Result;
use domain::{Change, Pause};
use ledger::Ledger;
use store::Store;

/// Publishes a change at once, as whoever made it does, and removes it from the outbox. If the counter store is away the change is safe all the
/// same: the relay of any node applies it later.
pub(crate) async fn publish_own(store: &Store, ledger: &Ledger, change: &Change) -> Result<()> {
    ledger.apply(change).await?;
    Ok(store.applied(change).await?)
}

/// Writes the rows of pauses that only the counter store knows of.
pub(crate) async fn settle(store: &Store, ledger: &Ledger, pauses: &[Pause]) -> Result<()> {
    for pause in pauses {
        store.record_pause(pause).await?;
        ledger.confirm(pause).await?;
    }
    Ok(())
}
