//! Settings of the management API.

use serde::{Deserialize, Serialize};

/// Limits of personal tokens; `default.toml` documents them.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ManageConfig {
    pub(crate) tokens_per_account_max: u32,
    pub(crate) requests_per_token_per_min_max: u32,
    pub(crate) unknown_tokens_per_subnet_per_min_max: u32,
    pub(crate) postgres_connections_max: u32,
}
