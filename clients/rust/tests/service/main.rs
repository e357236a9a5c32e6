//! The client against the real service: every scope, every status, and what is sent again.

mod refusals;
mod relay;
mod retries;
mod scopes;

use domain::Scope;
use testkit::node::Env;
use testkit::{House, HouseOptions, Issued};
use tokio::sync::OnceCell;

/// The house that all tests share; ends with the process.
async fn house() -> &'static House {
    static HOUSE: OnceCell<House> = OnceCell::const_new();
    HOUSE.get_or_init(start).await
}

/// A house whose stores are gone, and a key that its node has never seen: neither it nor the demo can be answered.
async fn failing() -> &'static (House, Issued) {
    static FAILING: OnceCell<(House, Issued)> = OnceCell::const_new();
    let make = async || {
        let mut house = start().await;
        let key = issue(&house, Scope::Ip).await;
        house.redis.kill9();
        house.postgres.kill9();
        (house, key)
    };
    FAILING.get_or_init(make).await
}

async fn start() -> House {
    // How the service bears a busy machine is not the question here.
    let patient =
        [("LEDGER__TIMEOUT_MS", "5000"), ("STORE__TIMEOUT_MS", "5000"), ("EDGE__REQUEST_TIMEOUT_MS", "20000")];
    let env: Env = patient.map(|(name, value)| (format!("IPSEITY__{name}"), value.to_owned())).into();
    House::start(HouseOptions { env, ..HouseOptions::default() }).await.expect("a house")
}

/// A key of an account that no other test uses.
async fn issue(house: &House, scope: Scope) -> Issued {
    let email = format!("{:016x}@example.com", fastrand::u64(..));
    house.account(&email).await.expect("an account");
    house.issue(&email, scope).await.expect("a key")
}

/// A key whose plan allows one request a day, which is used up, and its account.
async fn spent(house: &House) -> (Issued, String) {
    let name = format!("{:016x}", fastrand::u64(..));
    let (email, plan) = (format!("{name}@example.com"), format!("p{name}"));
    let cli = async |words: &[&str]| house.cli(words).await.and_then(testkit::CliOutput::success).expect("done");
    cli(&["plan", "add", &plan, "--daily-limit", "1"]).await;
    cli(&["account", "create", "--email", &email, "--plan", &plan]).await;
    let key = house.issue(&email, Scope::Ip).await.expect("a key");
    spend(house, &key, 1).await;
    (key, email)
}

/// Uses a key so often.
async fn spend(house: &House, key: &Issued, times: usize) {
    let mut caller = house.nodes[0].caller();
    for _ in 0..times {
        let reply = caller.get("/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("an answer");
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

/// Where a house is.
fn base_url(house: &House) -> String {
    format!("http://{}", house.nodes[0].http())
}
