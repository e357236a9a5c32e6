//! Bringing what one store knows to the other: changes to the counter store, pauses to the durable one.

use anyhow::Result;
use ipseity_domain::{KeyChange, KeyPause};
use ipseity_ledger::Ledger;
use ipseity_store::Store;

/// Publishes a change at once, as whoever made it does, and removes it from the outbox. If the counter store is away the change is safe all the
/// same: the relay of any node applies it later.
pub(crate) async fn publish_change(store: &Store, ledger: &Ledger, change: &KeyChange) -> Result<()> {
    ledger.apply_change(change).await?;
    Ok(store.outbox().ack(change).await?)
}

/// Writes the rows of pauses that only the counter store knows of.
pub(crate) async fn record_pauses(store: &Store, ledger: &Ledger, pauses: &[KeyPause]) -> Result<()> {
    for pause in pauses {
        store.keys().record_pause(pause).await?;
        ledger.mark_pause_recorded(pause).await?;
    }
    Ok(())
}
