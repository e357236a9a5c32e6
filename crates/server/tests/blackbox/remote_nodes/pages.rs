//! What a remote node serves: the API, the documentation and the landing page.

use http::Method;
use ipseity_domain::Scope;
use ipseity_testkit::deployment::sites::PORTAL_URL;
use ipseity_testkit::{FaultConfig, TestClient};

use super::fixture::Sites;
use crate::fixture::fresh_key;
use crate::limits::rate_limit_headers;

#[tokio::test(flavor = "multi_thread")]
async fn remote_node_answers_like_a_home_node() {
    let sites = Sites::start(1).await;
    let remote = sites.start_remote_node("syd", FaultConfig::none()).await;
    let (home, key) = (&sites.deployment.nodes[0], fresh_key(&sites.deployment, Scope::Full).await);
    let authorization = key.bearer();
    let headers = [("authorization", authorization.as_str()), ("x-forwarded-for", "192.0.2.7")];
    let here = remote.node.client().get("/api/v1/ip", &headers).await.expect("response arrives");
    let there = home.client().get("/api/v1/ip", &headers).await.expect("response arrives");
    assert_eq!((here.status, there.status), (200, 200), "{}", here.text());
    let fields = |reply: &ipseity_testkit::TestResponse| {
        let body = reply.json().expect("valid JSON");
        body.as_object().expect("object").keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(fields(&here), fields(&there));
    let (first, second) = (rate_limit_headers(&here), rate_limit_headers(&there));
    assert_eq!((first.limit, first.remaining), (second.limit, second.remaining + 1));

    let rotated_elsewhere = format!("{}x", &authorization[..authorization.len() - 1]);
    for authorization in ["Bearer ips_000", &rotated_elsewhere] {
        let reply = remote.node.client().get("/api/v1/ip", &[("authorization", authorization)]).await;
        assert_eq!(reply.expect("response arrives").status, 401);
    }
    let demo = remote.node.client().get("/api/v1/ip/demo", &[]).await.expect("response arrives");
    assert_eq!(demo.status, 200, "{}", demo.text());

    let deactivated = sites.deployment.cli(&["key", "deactivate", &key.id]).await.expect("run command");
    assert_eq!(deactivated.code, Some(0), "{}", deactivated.stderr);
    let reply = remote.node.client().get("/api/v1/ip", &headers).await.expect("response arrives");
    assert_eq!(reply.status, 403, "the next request is rejected: {}", reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_node_serves_documentation_and_redirects_account_pages() {
    let sites = Sites::start(1).await;
    let remote = sites.start_remote_node("syd", FaultConfig::none()).await;
    for path in ["/", "/docs", "/reference", "/status", "/robots.txt"] {
        let reply = remote.node.client().get(path, &[]).await.expect("response arrives");
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    }
    for (method, path, status) in [
        (Method::GET, "/signin", 307),
        (Method::GET, "/keys", 307),
        (Method::POST, "/signin", 303),
        (Method::POST, "/account/password", 303),
    ] {
        let reply = remote.node.client().send(method.clone(), path, &[]).await.expect("response arrives");
        assert_eq!(
            (reply.status, reply.header("location")),
            (status, Some(&*format!("{PORTAL_URL}{path}"))),
            "{method}"
        );
    }
    // A redirect would send the token to another host.
    let headers = [("authorization", "Bearer ipm_x")];
    let reply = remote.node.client().get("/api/v1/manage/keys", &headers).await.expect("response arrives");
    assert!(reply.status == 421 && reply.text().contains(PORTAL_URL), "{}", reply.text());
    let ready = TestClient::new(remote.node.ops()).get("/ready", &[]).await.expect("response arrives");
    let ready = ready.json().expect("valid JSON");
    assert_eq!((&ready["ready"], &ready["home"], &ready["degraded"]), (&true.into(), &"ok".into(), &false.into()));
    assert!(ready.get("store").is_none());
}
