//! Requests over plain HTTP to a service whose base URL uses https: keys are refused, and pages redirect.

use http::Method;
use ipseity_domain::{PlaintextKey, Scope};
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, IssuedKey, Node};

use crate::errors::{ExpectedError, base_url};
use crate::fixture::{fresh_key, shared_deployment};

const FORWARDED: (&str, &str) = ("x-forwarded-for", "198.51.100.7");

/// A node of the shared deployment with the default of `allow_plain_http`.
async fn start_node(deployment: &Deployment, settings: &[(&str, &str)]) -> Node {
    let mut env = Env::from([("IPSEITY__PUBLIC__ALLOW_PLAIN_HTTP".to_owned(), "false".to_owned())]);
    env.extend(settings.iter().map(|(name, value)| (format!("IPSEITY__{name}"), (*value).to_owned())));
    deployment.start_node(&env).await.expect("node starts")
}

async fn status_of(node: &Node, key: &IssuedKey, headers: &[(&str, &str)]) -> u16 {
    let bearer = key.bearer();
    let headers = [headers, &[("authorization", &*bearer)]].concat();
    node.client().get("/api/v1/ip", &headers).await.expect("response arrives").status
}

/// Requests a path over TLS. Returns the status and the value of a header.
async fn tls_header(deployment: &Deployment, node: &Node, path: &str, options: &[&str], header: &str) -> String {
    let (url, format) = (format!("https://{}{path}", node.https()), format!("%{{http_code}} %header{{{header}}}"));
    let arguments = ["--output", "/dev/null", "--write-out", &format, &url];
    deployment.curl(&[&arguments, options].concat()).await.expect("curl runs").text()
}

#[tokio::test(flavor = "multi_thread")]
async fn key_over_plain_http_is_refused_without_charge_or_redirect() {
    let deployment = shared_deployment().await;
    let (node, key) = (start_node(deployment, &[]).await, fresh_key(deployment, Scope::Ip).await);
    let mut caller = node.client();
    let (bearer, query) = (key.bearer(), format!("/api/v1/ip?key={}", key.key));
    let unknown_key = format!("Bearer {}", PlaintextKey::generate(|| fastrand::u8(..)).expose());
    for (path, authorization) in [
        ("/api/v1/ip", bearer.as_str()),
        ("/api/v1/ip", &key.key),
        ("/api/v1/ip", &unknown_key),
        ("/api/v1/ip", "Bearer nonsense"),
        (&query, ""),
    ] {
        let reply = caller.get(path, &[("authorization", authorization)]).await.expect("response arrives");
        let body = ExpectedError::HTTPS_REQUIRED.assert_matches(&reply);
        assert!(!reply.headers.contains_key("location"));
        let message = body["message"].as_str().expect("message is text");
        assert!(message.contains(&format!("Rotate it at {}/keys", base_url(&node))), "{message}");
        assert!(!body.to_string().contains(&key.key), "the response repeats the key");
    }
    let head = caller.send(Method::HEAD, &query, &[]).await.expect("response arrives");
    assert_eq!((head.status, head.body.len()), (400, 0));
    let authorization = format!("Authorization: {bearer}");
    let over_tls =
        tls_header(deployment, &node, "/api/v1/ip", &["--header", &authorization], "x-ratelimit-remaining").await;
    assert_eq!(over_tls, "200 9999", "a refused request was charged");
    assert!(!node.log().expect("log is readable").contains(&key.key), "the key is in the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn base_url_with_spaces_or_in_another_case_requires_https_too() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Ip).await;
    for base_url in ["HTTPS://ip.example.com", " https://ip.example.com"] {
        let node = start_node(deployment, &[("PUBLIC__BASE_URL", base_url)]).await;
        let reply = node.client().get("/api/v1/ip", &[("authorization", &key.bearer())]).await;
        let body = ExpectedError::HTTPS_REQUIRED.assert_matches(&reply.expect("response arrives"));
        let message = body["message"].as_str().expect("message is text");
        assert!(message.contains("Rotate it at https://ip.example.com/keys"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_key_are_answered_over_plain_http() {
    let deployment = shared_deployment().await;
    let node = start_node(deployment, &[]).await;
    let mut caller = node.client();
    for (path, status) in
        [("/api/v1/ip", 401), ("/api/v1/ip/demo", 200), ("/api/v1/meta", 200), ("/nowhere", 404), ("/api/v1/ip/", 404)]
    {
        assert_eq!(caller.get(path, &[]).await.expect("response arrives").status, status, "{path}");
    }
    let preflight = caller.send(Method::OPTIONS, "/api/v1/ip", &[]).await.expect("response arrives");
    assert_eq!(preflight.status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn scheme_that_a_trusted_proxy_reports_decides() {
    let deployment = shared_deployment().await;
    let node = start_node(deployment, &[("EDGE__SCHEME_HEADER", "x-forwarded-proto")]).await;
    let key = fresh_key(deployment, Scope::Ip).await;
    let scheme = |value| ("x-forwarded-proto", value);
    assert_eq!(status_of(&node, &key, &[FORWARDED, scheme("http")]).await, 400);
    assert_eq!(status_of(&node, &key, &[FORWARDED, scheme("https")]).await, 200);
    // A proxy that does not report the scheme must not break the API.
    assert_eq!(status_of(&node, &key, &[FORWARDED]).await, 200);
    assert_eq!(status_of(&node, &key, &[FORWARDED, scheme("gopher")]).await, 200);
    // The report is about the proxy before this one.
    assert_eq!(status_of(&node, &key, &[("x-forwarded-for", "198.51.100.7, 127.0.0.9"), scheme("http")]).await, 200);
    // The peer itself is the client.
    assert_eq!(status_of(&node, &key, &[scheme("https")]).await, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_is_accepted_over_plain_http_if_the_base_url_uses_http() {
    let deployment = shared_deployment().await;
    let node = start_node(deployment, &[("PUBLIC__BASE_URL", "http://ip.example.com")]).await;
    let key = fresh_key(deployment, Scope::Ip).await;
    assert_eq!(status_of(&node, &key, &[]).await, 200);
    assert_eq!(node.client().get("/", &[]).await.expect("response arrives").status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_over_plain_http_redirect_to_the_base_url() {
    let deployment = shared_deployment().await;
    let node = start_node(deployment, &[("EDGE__SCHEME_HEADER", "x-forwarded-proto")]).await;
    let mut caller = node.client();
    for path in ["/", "/signin", "/keys?done=resumed", "/docs/errors", "/robots.txt", "//evil.example.com/"] {
        for method in [Method::GET, Method::HEAD] {
            let reply = caller.send(method.clone(), path, &[]).await.expect("response arrives");
            if path.starts_with("//") {
                assert_eq!(reply.status, 404);
                continue;
            }
            assert_eq!(reply.status, 308, "{method} {path}");
            assert_eq!(reply.header("location"), Some(&*format!("{}{path}", base_url(&node))), "{method}");
            assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
            assert!(!reply.headers.contains_key("set-cookie"), "{path}");
        }
    }
    let form = caller.send(Method::POST, "/signin", &[]).await.expect("response arrives");
    assert!(form.status == 403 && !form.headers.contains_key("location"), "{}", form.status);
    for headers in [&[FORWARDED, ("x-forwarded-proto", "https")][..], &[FORWARDED]] {
        assert_eq!(caller.get("/signin", headers).await.expect("response arrives").status, 200);
    }
    assert_eq!(tls_header(deployment, &node, "/signin", &[], "location").await, "200 ");
}

#[tokio::test(flavor = "multi_thread")]
async fn hsts_is_sent_over_tls_only() {
    let deployment = shared_deployment().await;
    let node = start_node(deployment, &[("EDGE__SCHEME_HEADER", "x-forwarded-proto")]).await;
    let header = "strict-transport-security";
    for (path, status) in [("/api/v1/meta", 200), ("/api/v1/ip", 401), ("/nowhere", 404), ("/", 200)] {
        let over_tls = tls_header(deployment, &node, path, &[], header).await;
        assert_eq!(over_tls, format!("{status} max-age=15552000"), "{path}");
        for (headers, expected) in [
            (&[][..], None),
            (&[FORWARDED, ("x-forwarded-proto", "http")], None),
            (&[FORWARDED, ("x-forwarded-proto", "https")], Some("max-age=15552000")),
        ] {
            let reply = node.client().get(path, headers).await.expect("response arrives");
            assert_eq!(reply.header(header), expected, "{path}, {headers:?}");
        }
    }
    let node = start_node(deployment, &[("PUBLIC__BASE_URL", "http://ip.example.com")]).await;
    assert_eq!(tls_header(deployment, &node, "/", &[], header).await, "200 ");
}
