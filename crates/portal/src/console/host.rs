//! What the console needs from the server that hosts it.

use ipseity_keys::KeyService;
use ipseity_store::Store;

/// Services of the server that the console shows and uses.
pub trait ConsoleHost: Send + Sync {
    /// Opens connections whose changes the audit log attributes to this operator. `None` if the settings are invalid.
    fn open_stores(&self, operator: &str) -> Option<OperatorStores>;
    /// The state of PostgreSQL and Redis, as of the last probe.
    fn health(&self) -> Vec<HealthCheck>;
    /// The geo databases in use.
    fn geo_editions(&self) -> Vec<GeoEdition>;
    /// The certificates in use.
    fn certificates(&self) -> Vec<NodeCertificate>;
    /// The names and values of the effective settings, without secrets.
    fn settings(&self) -> Vec<(String, String)>;
}

/// Stores for the changes of one operator.
pub struct OperatorStores {
    /// PostgreSQL.
    pub store: Store,
    /// The service that changes keys.
    pub key_service: KeyService,
}

/// The state of a store.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    /// What was probed, such as `PostgreSQL`.
    pub name: &'static str,
    /// Why it failed. `None` if it works.
    pub error: Option<String>,
}

/// A geo database in use.
#[derive(Clone, Debug)]
pub struct GeoEdition {
    /// Its name, such as `GeoLite2-City`.
    pub name: String,
    /// When it was built, as Unix time in seconds.
    pub built_s: i64,
    /// The license's attribution, if there is one.
    pub attribution: Option<&'static str>,
}

/// A certificate in use.
#[derive(Clone, Debug)]
pub struct NodeCertificate {
    /// The first name that it is for, or its file.
    pub name: String,
    /// When it expires, as Unix time in seconds.
    pub expires_s: i64,
}
