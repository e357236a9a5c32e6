//! Bringing a committed change to the counter store.

use anyhow::Result;
use ledger::{Ledger, LedgerError};
use store::{Change, Store};

/// Writes a change into the counter store.
pub(crate) async fn publish(ledger: &Ledger, change: &Change) -> Result<(), LedgerError> {
    match change {
        Change::Stands(standing) => ledger.publish(standing).await,
        Change::Gone(id) => ledger.forget(*id).await,
    }
}

/// Publishes a change at once, as whoever made it does, and removes it from the outbox. If the counter store is away the change is safe all the
/// same: the relay of any node applies it later.
pub(crate) async fn publish_own(store: &Store, ledger: &Ledger, change: &Change) -> Result<()> {
    publish(ledger, change).await?;
    Ok(store.applied(change).await?)
}
