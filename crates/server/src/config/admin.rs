//! Settings of the admin console.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdminConfig {
    pub(crate) listen: String,
    pub(crate) url: String,
    pub(crate) oidc_name: String,
    pub(crate) oidc_issuer: String,
    pub(crate) oidc_client_id: String,
    pub(crate) oidc_client_secret_file: PathBuf,
    pub(crate) github_client_id: String,
    pub(crate) github_client_secret_file: PathBuf,
    pub(crate) session_idle_min: u64,
    pub(crate) session_hours_max: u64,
    pub(crate) sign_in_attempts_per_10_min_max: u32,
    pub(crate) actions_per_operator_per_10_min_max: u32,
    pub(crate) connections_max: usize,
    pub(crate) postgres_connections_max: u32,
    pub(crate) query_timeout_ms: u64,
}

impl AdminConfig {
    /// The address of the admin console. `None` if there is none.
    pub(crate) fn listen_address(&self) -> Result<Option<SocketAddr>> {
        let parsed = Some(&*self.listen).filter(|listen| !listen.is_empty()).map(str::parse).transpose();
        parsed.context("[admin] listen must be an address with a port, such as 127.0.0.1:9470")
    }
}
