//! Limits of the management API.

use std::time::Duration;

use ipseity_domain::{KeyDigest, KeyId};
use tokio::sync::Semaphore;

use crate::auth::secret_lookups::SecretLookups;
use crate::auth::throttle::Throttle;

const PERIOD: Duration = Duration::from_secs(60);

/// Limits of the management API.
#[derive(Clone, Copy, Debug)]
pub struct ManageSettings {
    /// Maximum number of personal tokens per account.
    pub tokens_per_account_max: u32,
    /// Maximum number of requests per token and minute.
    pub requests_per_token_per_min_max: u32,
    /// Maximum number of unknown tokens per subnet and minute that are looked up.
    pub unknown_tokens_per_subnet_per_min_max: u32,
    /// Maximum number of connections to PostgreSQL for changes.
    pub postgres_connections_max: u32,
}

/// Counts requests in memory, without addresses.
pub(crate) struct ManageLimits {
    /// By digest, not by id: a stranger who knows the id cannot use up the requests of the token.
    pub(super) request_throttle: Throttle<KeyDigest>,
    pub(super) unknown_tokens: SecretLookups,
    /// Tokens whose last use is being written.
    pub(super) use_throttle: Throttle<KeyId>,
    /// For connections of changes.
    pub(super) connections: Semaphore,
}

impl ManageLimits {
    /// Counts at most `entries_max` tokens and subnets.
    pub(crate) fn new(settings: &ManageSettings, entries_max: usize) -> Self {
        let connections_max = usize::try_from(settings.postgres_connections_max).unwrap_or(usize::MAX);
        Self {
            request_throttle: Throttle::new(settings.requests_per_token_per_min_max, PERIOD, entries_max),
            unknown_tokens: SecretLookups::new(settings.unknown_tokens_per_subnet_per_min_max, PERIOD, entries_max),
            use_throttle: Throttle::new(1, PERIOD, entries_max),
            connections: Semaphore::new(connections_max),
        }
    }

    /// Removes what no longer counts.
    pub(crate) fn remove_expired(&self) {
        self.request_throttle.remove_expired();
        self.unknown_tokens.remove_expired();
        self.use_throttle.remove_expired();
    }
}
