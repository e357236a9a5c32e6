//! What the portal needs from the server that hosts it.

use std::pin::Pin;
use std::time::Duration;

use http::HeaderMap;
use ipseity_domain::Client;
use serde_json::Value;

/// Services of the server that pages show.
pub trait HostServices: Send + Sync {
    /// Returns the attributions of the loaded databases. They change when a database is reloaded.
    fn data_attributions(&self) -> Vec<DataAttribution>;
    /// The operator's message on every page; empty if there is none. It can change at any time.
    fn banner(&self) -> String;
    /// What this node knows about the parts of the service. Nothing is probed for it.
    fn health(&self) -> ServiceHealth;
    /// Looks up the client itself, without charge; `None` if the lookup fails.
    fn self_lookup(&self, client: &Client) -> Option<VisitorLookup>;
    /// The URLs of this service over IPv4 only and over IPv6 only, if it has them.
    fn pair_urls(&self) -> Option<&[String; 2]>;

    /// Whether servers can create tickets for pages.
    fn has_tickets(&self) -> bool;
    /// Both addresses of a client that sent a token of its other connection, as JSON; `None` if no token can be used.
    fn paired_self_lookup(&self, client: &Client, headers: &HeaderMap) -> Option<Vec<u8>>;
    /// Reads the keys that GitHub signs reports of leaked keys with; `None` if that fails.
    fn fetch_scanner_keys(&self) -> Pin<Box<dyn Future<Output = Option<String>> + Send + '_>>;
    /// Returns the OpenAPI document of the API.
    fn openapi_document(&self) -> &Value;
}

/// The attribution of a data source, and the URL it links to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataAttribution {
    /// The attribution text.
    pub text: String,
    /// The link, if the license requires one.
    pub url: Option<String>,
}

/// What a node knows about the parts of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceHealth {
    /// Whether it can answer lookups.
    pub answers_lookups: bool,
    /// Whether it decides with local limits.
    pub is_degraded: bool,
    /// PostgreSQL.
    pub database: ProbeState,
    /// Redis, or on a remote node the connection to home.
    pub counting: ProbeState,
    /// Age of the oldest geo database. `None` if there is none.
    pub geo_age_days: Option<u64>,
    /// Sites of remote nodes.
    pub sites: Vec<SiteHeartbeat>,
}

/// The result of the last probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeState {
    /// There was none yet.
    NotProbed,
    /// It succeeded.
    Works,
    /// It failed.
    Failed,
    /// Only home nodes can probe it.
    Elsewhere,
}

/// The last sign of life of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteHeartbeat {
    /// The name of the site.
    pub name: String,
    /// Age of its last heartbeat. `None` if this node has not read it for a while.
    pub seen_ago_s: Option<u64>,
}

/// A visitor's lookup. No `Debug`, because it contains the address.
pub struct VisitorLookup {
    /// The full response as indented JSON.
    pub json: String,
    /// Accuracy radius of the location, if known.
    pub accuracy_km: Option<u16>,
    /// Time taken to look up and render the response.
    pub elapsed: Duration,
}
