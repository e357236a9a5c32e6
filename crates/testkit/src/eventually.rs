//! Waits for a condition with a deadline instead of a fixed sleep.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep, timeout_at};

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls until the condition holds. Fails with `what` after the timeout, even if the condition hangs.
pub async fn eventually(what: &str, within: Duration, mut condition: impl AsyncFnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + within;
    loop {
        match timeout_at(deadline, condition()).await {
            Ok(true) => return Ok(()),
            Ok(false) if Instant::now() < deadline => sleep(POLL_INTERVAL).await,
            Ok(false) | Err(_) => bail!("{what}: not within {within:?}"),
        }
    }
}
