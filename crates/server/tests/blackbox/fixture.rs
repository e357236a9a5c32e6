//! The deployment that most tests share, and common helpers.

use std::time::{SystemTime, UNIX_EPOCH};

use ipseity_domain::{Location, Scope};
use ipseity_testkit::fixtures::geo_database;
use ipseity_testkit::{Deployment, DeploymentOptions, IssuedKey, Node};
use tokio::sync::OnceCell;

static DEPLOYMENT: OnceCell<Deployment> = OnceCell::const_new();

/// The shared deployment. It ends with the process.
pub(crate) async fn shared_deployment() -> &'static Deployment {
    DEPLOYMENT
        .get_or_init(async || {
            Deployment::start(DeploymentOptions { env: relaxed_timeouts(), ..DeploymentOptions::default() })
                .await
                .expect("deployment starts")
        })
        .await
}

/// Issues a key on a new account.
pub(crate) async fn fresh_key(deployment: &Deployment, scope: Scope) -> IssuedKey {
    let email = format!("{:016x}@example.com", fastrand::u64(..));
    deployment.create_account(&email).await.expect("create an account");
    deployment.issue_key(&email, scope).await.expect("issue a key")
}

/// Long timeouts for busy machines. The default for Redis is meant for production, not for a test suite on two cores.
pub(crate) fn relaxed_timeouts() -> ipseity_testkit::deployment::node::Env {
    [
        ("IPSEITY__LEDGER__TIMEOUT_MS", "5000"),
        ("IPSEITY__STORE__TIMEOUT_MS", "10000"),
        ("IPSEITY__PORTAL__QUERY_TIMEOUT_MS", "10000"),
        ("IPSEITY__EDGE__REQUEST_TIMEOUT_MS", "20000"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect()
}

/// A small City database with this age.
pub(crate) fn city_database_aged(age_days: u64) -> Vec<u8> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("time is after 1970").as_secs();
    let location = Location { country: Some("DE"), ..Location::default() };
    geo_database::city_database(now_s - age_days * 86_400, &[("192.0.2.0/24", location)]).expect("create a database")
}

/// Size of a test: from the environment, or a default that fits into the suite.
pub(crate) fn env_number(name: &str, default: u32) -> u32 {
    std::env::var(name).map_or(default, |value| value.parse().expect("valid number"))
}

/// The status of a lookup with a key.
pub(crate) async fn lookup_status(node: &Node, key: &str) -> u16 {
    let authorization = format!("Bearer {key}");
    let reply = node.client().get("/api/v1/ip", &[("authorization", &authorization)]).await;
    reply.expect("response arrives").status
}
