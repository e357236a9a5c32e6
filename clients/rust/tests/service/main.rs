//! Tests the client against the real service: every scope, every status, and retries.

mod counting_proxy;
mod errors;
mod manage;
mod pairing;
mod retries;
mod scopes;
mod test_keys;
mod tickets;

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, IssuedKey};
use tokio::sync::OnceCell;

/// The deployment that all tests share. It ends with the process.
async fn deployment() -> &'static Deployment {
    static DEPLOYMENT: OnceCell<Deployment> = OnceCell::const_new();
    DEPLOYMENT.get_or_init(start_deployment).await
}

/// A deployment without PostgreSQL and Redis, and a key that its node has never seen. Lookups with it and of the demo fail.
async fn failing_deployment() -> &'static (Deployment, IssuedKey) {
    static FAILING_DEPLOYMENT: OnceCell<(Deployment, IssuedKey)> = OnceCell::const_new();
    let make = async || {
        let mut deployment = start_deployment().await;
        let key = issue_key(&deployment, Scope::Ip).await;
        deployment.redis.kill9();
        deployment.postgres.kill9();
        (deployment, key)
    };
    FAILING_DEPLOYMENT.get_or_init(make).await
}

async fn start_deployment() -> Deployment {
    // These tests do not cover timeouts, so a busy machine must not cause any.
    let long_timeouts =
        [("LEDGER__TIMEOUT_MS", "5000"), ("STORE__TIMEOUT_MS", "5000"), ("EDGE__REQUEST_TIMEOUT_MS", "20000")];
    let env: Env = long_timeouts.map(|(name, value)| (format!("IPSEITY__{name}"), value.to_owned())).into();
    Deployment::start(DeploymentOptions { env, ..DeploymentOptions::default() }).await.expect("deployment starts")
}

/// Issues a key on a new account.
async fn issue_key(deployment: &Deployment, scope: Scope) -> IssuedKey {
    let email = format!("{:016x}@example.com", fastrand::u64(..));
    deployment.create_account(&email).await.expect("create an account");
    deployment.issue_key(&email, scope).await.expect("issue a key")
}

/// A key with an exhausted daily quota of one request, and its account.
async fn exhausted_key(deployment: &Deployment) -> (IssuedKey, String) {
    let name = format!("{:016x}", fastrand::u64(..));
    let (email, plan) = (format!("{name}@example.com"), format!("p{name}"));
    let cli = async |args: &[&str]| {
        deployment.cli(args).await.and_then(ipseity_testkit::CommandOutput::ensure_success).expect("command succeeds")
    };
    cli(&["plan", "add", &plan, "--daily-limit", "1"]).await;
    cli(&["account", "create", "--email", &email, "--plan", &plan]).await;
    let key = deployment.issue_key(&email, Scope::Ip).await.expect("issue a key");
    send_lookups(deployment, &key, 1).await;
    (key, email)
}

/// Sends this many lookups, which must all succeed.
async fn send_lookups(deployment: &Deployment, key: &IssuedKey, count: usize) {
    let mut caller = deployment.nodes[0].client();
    for _ in 0..count {
        let reply = caller.get("/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("response");
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

fn base_url(deployment: &Deployment) -> String {
    format!("http://{}", deployment.nodes[0].http())
}
