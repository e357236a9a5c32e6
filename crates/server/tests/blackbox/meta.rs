//! GET /api/v1/meta, and the attributions on the docs page.

use http::Method;
use ipseity_domain::Scope;
use serde_json::{Value, json};

use crate::fixture::{fresh_key, shared_deployment};

#[tokio::test(flavor = "multi_thread")]
async fn meta_returns_version_and_data_without_key_or_charge() {
    let deployment = shared_deployment().await;
    let mut caller = deployment.nodes[0].client();
    let reply = caller.get("/api/v1/meta", &[("origin", "https://shop.example.com")]).await.expect("response arrives");
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    assert_eq!(reply.header("cache-control"), Some("public, max-age=300"));
    assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
    assert_eq!((reply.header("x-ratelimit-limit"), reply.header("x-ratelimit-remaining")), (None, None));
    assert!(reply.header("x-request-id").is_some());
    let meta = reply.json().expect("valid JSON");
    assert_eq!((&meta["version"], &meta["interface"]), (&json!(env!("CARGO_PKG_VERSION")), &json!("1.1.0")));
    let databases = meta["databases"].as_array().expect("value is a list");
    let listed: Vec<[&Value; 3]> = databases.iter().map(|one| [&one["type"], &one["kind"], &one["built_at"]]).collect();
    let built = json!("2026-01-01T00:00:00Z");
    assert_eq!(
        listed,
        [[&json!("GeoLite2-City"), &json!("city"), &built], [&json!("GeoLite2-ASN"), &json!("asn"), &built]]
    );
    for database in databases {
        assert!(database["age_days"].is_u64(), "{database}");
        let sentence =
            "This product includes GeoLite2 data created by MaxMind, available from https://www.maxmind.com.";
        assert_eq!(database["attribution"], json!(sentence));
    }
    assert!(meta["notices"].as_array().is_some_and(|notices| !notices.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn meta_supports_the_same_methods_as_lookup() {
    let mut caller = shared_deployment().await.nodes[0].client();
    let head = caller.send(Method::HEAD, "/api/v1/meta", &[]).await.expect("response arrives");
    assert_eq!((head.status, head.body.len()), (200, 0));
    let preflight = caller.send(Method::OPTIONS, "/api/v1/meta", &[]).await.expect("response arrives");
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-methods"), Some("GET, HEAD, OPTIONS"));
    let refused = caller.send(Method::POST, "/api/v1/meta", &[]).await.expect("response arrives");
    assert_eq!((refused.status, refused.header("cache-control")), (405, Some("no-store")));
    assert!(refused.header("allow").is_some_and(|allow| allow.contains("GET")));
}

#[tokio::test(flavor = "multi_thread")]
async fn docs_page_credits_each_data_source_once() {
    let page = shared_deployment().await.nodes[0].client().get("/docs/data", &[]).await.expect("page loads").text();
    let section = page.split_once("<h2 id=\"data\">").expect("section exists").1;
    assert_eq!(section.matches("<a href=\"https://www.maxmind.com\">This product includes GeoLite2 data").count(), 1);
    assert!(section.contains("OpenStreetMap"));
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_schemas_match_the_responses() {
    let deployment = shared_deployment().await;
    let mut caller = deployment.nodes[0].client();
    let document = caller.get("/api/v1/openapi.json", &[]).await.expect("response arrives").json().expect("valid JSON");
    assert_eq!((&document["openapi"], &document["info"]["version"]), (&json!("3.1.0"), &json!("1.1.0")));
    for path in ["/api/v1/ip", "/api/v1/ip/demo", "/api/v1/meta"] {
        let operation = &document["paths"][path]["get"]["responses"];
        let key = fresh_key(deployment, Scope::Full).await;
        let reply = caller.get(path, &[("authorization", &key.bearer())]).await.expect("response arrives");
        let described = &operation[reply.status.to_string()]["content"]["application/json"]["schema"]["$ref"];
        let name = described.as_str().and_then(|name| name.rsplit('/').next()).expect("schema exists");
        let properties =
            document["components"]["schemas"][name]["properties"].as_object().expect("schema has properties");
        let response = reply.json().expect("valid JSON");
        let fields = response.as_object().expect("value is an object");
        assert!(fields.keys().all(|field| properties.contains_key(field)), "{path} returns more than {name}");
        assert_eq!(fields.len(), properties.len(), "{path}");
    }
}
