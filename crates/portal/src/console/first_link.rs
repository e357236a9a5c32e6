//! Makes the first visitor an operator: a link in the log of a node, while the deployment has no operator.

use std::sync::Arc;
use std::time::Duration;

use crate::console::join::generate_operator_link;
use crate::console::state::Console;

const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Saves a link for the first operator, and writes it to the log. Does nothing if there is an operator.
pub async fn offer_first_link(console: Arc<Console>) {
    loop {
        let (url, digest) = generate_operator_link(&console.settings.url);
        match console.store.operators().create_first_link(&digest).await {
            Ok(true) => {
                tracing::info!(%url, "the admin console has no operator; the first visitor of this link becomes its admin");
                return;
            }
            Ok(false) => return,
            // PostgreSQL may start later, or may not have been migrated.
            Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
        }
    }
}
