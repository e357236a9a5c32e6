//! Compares the OpenAPI document with the service: exactly the same paths, methods, statuses and headers.

use std::collections::BTreeSet;

use http::Method;
use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, TestClient, TestDir, TestResponse};
use serde_json::Value;

use crate::fixture::{fresh_key, relaxed_timeouts, shared_deployment};
use crate::pairing::pairing_env;
use crate::tickets::{TICKETS_PATH, ticket_env};

/// Transport headers, which any response may have.
const TRANSPORT_HEADERS: [&str; 6] =
    ["allow", "alt-svc", "content-length", "content-type", "date", "strict-transport-security"];
/// Headers that depend on the request.
const OPTIONAL_HEADERS: [&str; 1] = ["ipseity-pair-unused"];
const METHODS: [Method; 8] = [
    Method::GET,
    Method::HEAD,
    Method::OPTIONS,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::TRACE,
];

async fn fetch_document(caller: &mut TestClient) -> Value {
    caller.get("/api/v1/openapi.json", &[]).await.expect("response arrives").json().expect("valid JSON")
}

fn lowercase_keys(map: &Value) -> BTreeSet<String> {
    map.as_object().expect("value is a map").keys().map(|name| name.to_lowercase()).collect()
}

/// Observed statuses by `method path`. Each response is validated against the documented headers and body.
#[derive(Default)]
struct ObservedResponses(BTreeSet<(String, String)>);

impl ObservedResponses {
    #[track_caller]
    fn check_response(&mut self, document: &Value, method: &Method, path: &str, reply: &TestResponse) {
        let operation = &document["paths"][path][method.as_str().to_lowercase()];
        let response = &operation["responses"][reply.status.to_string()];
        assert!(response.is_object(), "{method} {path} returned {}, which is not documented", reply.status);
        let sent: BTreeSet<_> = reply.headers.keys().map(|name| name.as_str().to_owned()).collect();
        let sent: BTreeSet<_> = sent.into_iter().filter(|name| !TRANSPORT_HEADERS.contains(&name.as_str())).collect();
        let is_expected = |name: &String| !OPTIONAL_HEADERS.contains(&name.as_str()) || sent.contains(name);
        let described: BTreeSet<_> = lowercase_keys(&response["headers"]).into_iter().filter(is_expected).collect();
        assert_eq!(sent, described, "{method} {path} {}", reply.status);
        match response["content"].as_object() {
            Some(content) => {
                let kind = reply.header("content-type").expect("type exists");
                assert!(content.contains_key(kind), "{method} {path}: {kind}");
            }
            None => assert!(reply.body.is_empty(), "{method} {path} has a body"),
        }
        self.0.insert((format!("{} {path}", method.as_str().to_lowercase()), reply.status.to_string()));
    }

    /// Sends a request and validates the response against the document.
    async fn request_and_check(
        &mut self,
        caller: &mut TestClient,
        document: &Value,
        path: &str,
        query: &str,
        headers: &[(&str, &str)],
    ) {
        let is_described = |method: &Method| document["paths"][path].get(method.as_str().to_lowercase()).is_some();
        for method in [Method::GET, Method::HEAD, Method::POST].into_iter().filter(is_described) {
            let reply =
                caller.send(method.clone(), &format!("{path}{query}"), headers).await.expect("response arrives");
            self.check_response(document, &method, path, &reply);
        }
    }
}

/// All documented statuses.
fn described_responses(document: &Value) -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    for (path, item) in document["paths"].as_object().expect("document has paths") {
        for (method, operation) in item.as_object().expect("methods are listed") {
            all.extend(
                lowercase_keys(&operation["responses"]).into_iter().map(|status| (format!("{method} {path}"), status)),
            );
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_lists_exactly_the_routes_and_methods() {
    let mut caller = shared_deployment().await.nodes[0].client();
    let document = fetch_document(&mut caller).await;
    for (path, item) in document["paths"].as_object().expect("document has paths") {
        for method in METHODS {
            let reply = caller.send(method.clone(), path, &[]).await.expect("response arrives");
            let is_described = item.get(method.as_str().to_lowercase()).is_some();
            assert_eq!(reply.status != 405, is_described, "{method} {path} returned {}", reply.status);
        }
    }
    for absent in ["/api/v1/events", "/api/v1/keys", "/api/v1/openapi"] {
        assert_eq!(caller.get(absent, &[]).await.expect("response arrives").status, 404, "{absent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_documented_status_occurs_with_its_headers() {
    let mut deployment =
        Deployment::start(DeploymentOptions { env: relaxed_timeouts(), ..DeploymentOptions::default() })
            .await
            .expect("deployment starts");
    let (mut caller, mut observed) = (deployment.nodes[0].client(), ObservedResponses::default());
    let mut document = fetch_document(&mut caller).await;
    // The tests of the management API and schemathesis check its operations, which need personal tokens.
    let paths = document["paths"].as_object_mut().expect("document has paths");
    paths.retain(|path, _| !path.starts_with("/api/v1/manage/"));
    let paths: Vec<String> = document["paths"].as_object().expect("document has paths").keys().cloned().collect();
    let long = format!("?x={}", "x".repeat(5_000));
    let key = fresh_key(&deployment, Scope::Full).await;
    let bearer = key.bearer();
    for path in &paths {
        observed.request_and_check(&mut caller, &document, path, "", &[("authorization", &bearer)]).await;
        observed.request_and_check(&mut caller, &document, path, &long, &[]).await;
        for query in ["", &long] {
            let reply = caller.send(Method::OPTIONS, &format!("{path}{query}"), &[]).await.expect("response arrives");
            observed.check_response(&document, &Method::OPTIONS, path, &reply);
        }
    }
    let (lookup, demo, status) = ("/api/v1/ip", "/api/v1/ip/demo", "/api/v1/key");
    observed.request_and_check(&mut caller, &document, lookup, "", &[]).await;
    observed.request_and_check(&mut caller, &document, status, "", &[]).await;
    observed.request_and_check(&mut caller, &document, lookup, "?key=x", &[]).await;
    let https_only = Env::from([("IPSEITY__PUBLIC__ALLOW_PLAIN_HTTP".to_owned(), "false".to_owned())]);
    let https_node = deployment.start_node(&https_only).await.expect("node starts");
    observed.request_and_check(&mut https_node.client(), &document, lookup, "?key=x", &[]).await;
    observed.request_and_check(&mut https_node.client(), &document, status, "?key=x", &[]).await;
    let no_status =
        Env::from([("IPSEITY__LEDGER__KEY_STATUS_REQUESTS_PER_KEY_PER_MIN_MAX".to_owned(), "0".to_owned())]);
    let limited_node = deployment.start_node(&no_status).await.expect("node starts");
    let headers = [("authorization", bearer.as_str())];
    observed.request_and_check(&mut limited_node.client(), &document, status, "", &headers).await;
    let pairing = deployment.start_node(&pairing_env(&[("PAIR_TOKENS_PER_SUBNET_PER_MIN_MAX", "2")])).await;
    let pairing = pairing.expect("node starts");
    let mut at_ipv4_host = pairing.client();
    for path in &paths {
        let over_ipv6 = [("x-forwarded-for", "2001:db8::7")];
        observed.request_and_check(&mut at_ipv4_host, &document, path, "", &over_ipv6).await;
    }
    let dir = TestDir::create().expect("create a directory");
    let list = dir.path().join("blocked.txt");
    std::fs::write(&list, "203.0.113.7\n").expect("write the list");
    let blocking = Env::from([("IPSEITY__EDGE__BLOCKED_NETWORKS_FILE".to_owned(), list.display().to_string())]);
    let blocking_node = deployment.start_node(&blocking).await.expect("node starts");
    for path in &paths {
        let blocked = [("x-forwarded-for", "203.0.113.7")];
        observed.request_and_check(&mut blocking_node.client(), &document, path, "", &blocked).await;
    }
    // Every minute, two succeed and the others do not.
    for _ in 0..4 {
        observed.request_and_check(&mut at_ipv4_host, &document, "/api/v1/pair", "", &[]).await;
    }
    let unused = [("authorization", &*bearer), ("ipseity-pair", "x")];
    observed.request_and_check(&mut at_ipv4_host, &document, lookup, "", &unused).await;
    observe_tickets(&deployment, &mut observed, &document, &bearer).await;
    let [inactive, exhausted] = [fresh_key(&deployment, Scope::Ip).await, fresh_key(&deployment, Scope::Ip).await];
    deployment.cli(&["key", "deactivate", &inactive.id]).await.expect("deactivate the key");
    observed.request_and_check(&mut caller, &document, lookup, "", &[("authorization", &inactive.bearer())]).await;
    let today = "(now() at time zone 'utc')::date";
    let rows = format!(
        "insert into usage values ('{}', {today}, 10000);
         insert into demo_usage values ({today}, 1000, 0) on conflict (day) do update set admitted = 1000",
        exhausted.id
    );
    deployment.postgres.psql("ipseity", &rows).await.expect("query succeeds");
    deployment.redis.flushall().await.expect("flush Redis");
    observed.request_and_check(&mut caller, &document, lookup, "", &[("authorization", &exhausted.bearer())]).await;
    observed.request_and_check(&mut caller, &document, demo, "", &[]).await;
    // Without Redis and PostgreSQL, and for a key that the node has never seen.
    let never_observed = fresh_key(&deployment, Scope::Ip).await;
    deployment.redis.kill9();
    deployment.postgres.kill9();
    observed
        .request_and_check(&mut caller, &document, lookup, "", &[("authorization", &never_observed.bearer())])
        .await;
    let never_observed: Vec<_> = described_responses(&document).difference(&observed.0).cloned().collect();
    // Routes without storage cannot be made to fail from outside.
    let never_observed: Vec<_> = never_observed.into_iter().filter(|(_, status)| status != "500").collect();
    assert!(never_observed.is_empty(), "documented but never observed: {never_observed:?}");
    assert!(observed.0.contains(&("get /api/v1/ip".to_owned(), "500".to_owned())));
}

/// Creates tickets until the limit, and sends one with an origin that it is not for.
async fn observe_tickets(deployment: &Deployment, observed: &mut ObservedResponses, document: &Value, bearer: &str) {
    let dir = TestDir::create().expect("directory");
    let mut env = ticket_env(dir.path(), "http://localhost");
    env.insert("IPSEITY__PUBLIC__TICKETS_PER_KEY_PER_MIN_MAX".to_owned(), "3".to_owned());
    let node = deployment.start_node(&env).await.expect("node starts");
    let mut caller = node.client();
    let options = r#"{"origin": "https://shop.example"}"#;
    let reply = caller.post(TICKETS_PATH, &[("authorization", bearer)], options).await.expect("response arrives");
    let ticket = reply.json().expect("valid JSON")["ticket"].as_str().map(|ticket| format!("Bearer {ticket}"));
    let foreign = [("authorization", ticket.as_deref().expect("text"))];
    observed.request_and_check(&mut caller, document, "/api/v1/key", "", &foreign).await;
    let reply = caller.post(TICKETS_PATH, &[("authorization", bearer)], "{").await.expect("response arrives");
    observed.check_response(document, &Method::POST, TICKETS_PATH, &reply);
    for headers in [
        &[("authorization", bearer)][..],
        &[("authorization", bearer)],
        &[],
        &[("authorization", bearer), ("origin", "https://shop.example")],
    ] {
        observed.request_and_check(&mut caller, document, TICKETS_PATH, "", headers).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_json_and_yaml_agree_and_are_cacheable() {
    let mut caller = shared_deployment().await.nodes[0].client();
    let document = fetch_document(&mut caller).await;
    let yaml = caller.get("/api/v1/openapi.yaml", &[]).await.expect("response arrives");
    assert_eq!((yaml.status, yaml.header("content-type")), (200, Some("application/yaml")));
    assert_eq!(yaml.header("cache-control"), Some("public, max-age=300"));
    let text = yaml.text();
    assert!(text.starts_with("openapi: \"3.1.0\"\n"));
    // Every text of the JSON document occurs in the YAML document. tools/docs parses both.
    for path in document["paths"].as_object().expect("document has paths").keys() {
        assert!(text.contains(&format!("\"{path}\":\n")), "{path}");
    }
}
