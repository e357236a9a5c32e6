//! Limits that an operator sets: by plan, for one account and for one key.

use ipseity_domain::Scope;
use ipseity_testkit::{Deployment, DeploymentOptions, IssuedKey, TestClient, TestResponse};
use serde_json::Value;

use crate::fixture::relaxed_timeouts;
use crate::limits::rate_limit_headers;

struct LimitsFixture {
    deployment: Deployment,
    caller: TestClient,
}

impl LimitsFixture {
    async fn start() -> Self {
        let mut env = relaxed_timeouts();
        env.insert("IPSEITY__LEDGER__DEMO_DAILY_LIMIT".to_owned(), "3".to_owned());
        let options = DeploymentOptions { env, ..DeploymentOptions::default() };
        let deployment = Deployment::start(options).await.expect("deployment starts");
        Self { caller: TestClient::new(deployment.nodes[0].http()), deployment }
    }

    async fn run(&self, arguments: &[&str]) -> String {
        let output = self.deployment.cli(arguments).await.expect("command runs");
        output.ensure_success().expect("command succeeds").text()
    }

    async fn lookup(&mut self, key: &IssuedKey) -> TestResponse {
        let authorization = format!("Bearer {}", key.key);
        self.caller.get("/api/v1/ip", &[("authorization", &authorization)]).await.expect("response arrives")
    }

    /// Sends as many requests as the burst limit admits, and one more, which pauses the key.
    async fn exceed_burst_limit(&mut self, key: &IssuedKey, burst_limit: u64) {
        for sent in 1..=burst_limit {
            let reply = self.lookup(key).await;
            assert_eq!(reply.status, 200, "request {sent} of {burst_limit}: {}", reply.text());
            let policy = reply.headers["ratelimit-policy"].to_str().expect("text").to_owned();
            assert!(policy.ends_with(&format!("\"burst\";q={burst_limit};w=60")), "{policy}");
        }
        let reply = self.lookup(key).await;
        assert_eq!(reply.status, 429, "{}", reply.text());
        assert_eq!(rate_limit_headers(&reply).limit, burst_limit);
        assert!(reply.text().contains(&format!("Burst limit exceeded: {burst_limit} requests")), "{}", reply.text());
        let reply = self.lookup(key).await;
        assert_eq!(reply.status, 403, "{}", reply.text());
        assert!(reply.text().contains(&format!("Key paused: over {burst_limit} requests")), "{}", reply.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_accounts_and_keys_have_limits_of_their_own() {
    let mut fixture = LimitsFixture::start().await;
    let plan = ["plan", "add", "small", "--daily-limit", "20", "--burst-limit", "5", "--keys-max", "2"];
    fixture.run(&plan).await;
    fixture.run(&["account", "create", "--email", "ada@example.com", "--plan", "small"]).await;
    let first = fixture.deployment.issue_key("ada@example.com", Scope::Ip).await.expect("first key");
    let second = fixture.deployment.issue_key("ada@example.com", Scope::Ip).await.expect("second key");
    let third = fixture.deployment.issue_key("ada@example.com", Scope::Ip).await;
    let Err(refused) = third else { panic!("third key is issued") };
    assert!(format!("{refused:?}").contains("reached the limit of 2 keys"), "{refused:?}");
    fixture.exceed_burst_limit(&first, 5).await;

    // The account's own limits replace those of the plan, starting with the next request.
    assert_eq!(fixture.lookup(&second).await.status, 200);
    let limits = ["account", "limits", "--email", "ada@example.com", "--burst-limit", "8", "--keys-max", "3"];
    let printed = fixture.run(&limits).await;
    assert!(printed.contains("20 requests per key per day, 8 in any 60 seconds, up to 3 keys"), "{printed}");
    fixture.deployment.issue_key("ada@example.com", Scope::Ip).await.expect("third key");
    let reply = fixture.lookup(&second).await;
    assert!(reply.headers["ratelimit-policy"].to_str().expect("text").contains("\"burst\";q=8"));

    // The key's own limits replace those of the account. Lowered below what it has used, the next request pauses it.
    fixture.run(&["key", "limits", &second.id, "--daily-limit", "500", "--burst-limit", "3"]).await;
    let reply = fixture.lookup(&second).await;
    assert_eq!((reply.status, rate_limit_headers(&reply).limit), (200, 500));
    assert_eq!(fixture.lookup(&second).await.status, 429);
    let show: Value = serde_json::from_str(&fixture.run(&["key", "show", &second.id, "--json"]).await).expect("JSON");
    assert_eq!(show["limits"]["burst_limit"], 3, "{show}");

    // Without options, the plan applies again.
    fixture.run(&["key", "limits", &second.id]).await;
    fixture.run(&["account", "limits", "--email", "ada@example.com"]).await;
    fixture.run(&["key", "resume", &second.id]).await;
    fixture.exceed_burst_limit(&second, 5).await;

    // The account still has its third key. What counts is how many it has, not which were deleted.
    fixture.run(&["key", "delete", &first.id, "--yes"]).await;
    assert!(fixture.deployment.issue_key("ada@example.com", Scope::Ip).await.is_err(), "a third key is issued");

    let audit = fixture.run(&["audit", "--key", &second.id]).await;
    assert!(audit.matches("limits_changed").count() == 2, "{audit}");
    assert!(audit.contains("daily_limit 500, burst_limit 3"), "{audit}");
    let audit = fixture.run(&["audit"]).await;
    assert!(audit.contains("burst_limit 8, keys_max 3"), "{audit}");
    let doctor = fixture.deployment.cli(&["doctor"]).await.expect("doctor runs").text();
    assert!(doctor.contains("Outside the contract: plan small has"), "{doctor}");
    assert!(doctor.contains("[ledger] demo_daily_limit is 3"), "{doctor}");
}

#[tokio::test(flavor = "multi_thread")]
async fn local_limits_are_those_of_the_key_without_redis() {
    let mut fixture = LimitsFixture::start().await;
    fixture.run(&["account", "create", "--email", "ada@example.com"]).await;
    let key = fixture.deployment.issue_key("ada@example.com", Scope::Ip).await.expect("key is issued");
    fixture.run(&["key", "limits", &key.id, "--burst-limit", "400"]).await;
    assert_eq!(fixture.lookup(&key).await.status, 200);
    fixture.deployment.redis.kill9();
    for sent in 2..=400 {
        let reply = fixture.lookup(&key).await;
        assert_eq!(reply.status, 200, "request {sent}: {}", reply.text());
    }
    let reply = fixture.lookup(&key).await;
    assert_eq!((reply.status, rate_limit_headers(&reply).limit), (429, 400));
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_has_the_limit_of_the_setting() {
    let mut fixture = LimitsFixture::start().await;
    for remaining in [2, 1, 0] {
        let reply = fixture.caller.get("/api/v1/ip/demo", &[]).await.expect("response arrives");
        assert_eq!((rate_limit_headers(&reply).limit, rate_limit_headers(&reply).remaining), (3, remaining));
    }
    assert_eq!(fixture.caller.get("/api/v1/ip/demo", &[]).await.expect("response arrives").status, 429);
}
