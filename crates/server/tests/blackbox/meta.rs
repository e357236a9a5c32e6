//! GET /api/v1/meta and the attributions on the docs page.

use domain::Scope;
use http::Method;
use serde_json::{Value, json};

use crate::shared::{fresh_key, house};

#[tokio::test(flavor = "multi_thread")]
async fn meta_tells_version_and_data_without_a_key_and_uncharged() {
    let house = house().await;
    let mut caller = house.nodes[0].caller();
    let reply = caller.get("/api/v1/meta", &[("origin", "https://shop.example.com")]).await.expect("an answer");
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    assert_eq!(reply.header("cache-control"), Some("public, max-age=300"));
    assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
    assert_eq!((reply.header("x-ratelimit-limit"), reply.header("x-ratelimit-remaining")), (None, None));
    assert!(reply.header("x-request-id").is_some());
    let meta = reply.json().expect("JSON");
    assert_eq!((&meta["version"], &meta["interface"]), (&json!(env!("CARGO_PKG_VERSION")), &json!("1.1.0")));
    let databases = meta["databases"].as_array().expect("databases");
    let told: Vec<[&Value; 3]> = databases.iter().map(|one| [&one["type"], &one["kind"], &one["built_at"]]).collect();
    let built = json!("2026-01-01T00:00:00Z");
    assert_eq!(
        told,
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
async fn meta_answers_the_methods_that_lookups_answer() {
    let mut caller = house().await.nodes[0].caller();
    let head = caller.send(Method::HEAD, "/api/v1/meta", &[]).await.expect("an answer");
    assert_eq!((head.status, head.body.len()), (200, 0));
    let preflight = caller.send(Method::OPTIONS, "/api/v1/meta", &[]).await.expect("an answer");
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-methods"), Some("GET, HEAD, OPTIONS"));
    let refused = caller.send(Method::POST, "/api/v1/meta", &[]).await.expect("an answer");
    assert_eq!((refused.status, refused.header("cache-control")), (405, Some("no-store")));
    assert!(refused.header("allow").is_some_and(|allow| allow.contains("GET")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_docs_page_names_the_makers_of_the_data_once() {
    let page = house().await.nodes[0].caller().get("/docs/data", &[]).await.expect("a page").text();
    let section = page.split_once("<h2 id=\"data\">").expect("a section").1;
    assert_eq!(section.matches("<a href=\"https://www.maxmind.com\">This product includes GeoLite2 data").count(), 1);
    assert!(section.contains("OpenStreetMap"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_openapi_document_describes_what_is_answered() {
    let house = house().await;
    let mut caller = house.nodes[0].caller();
    let document = caller.get("/api/v1/openapi.json", &[]).await.expect("an answer").json().expect("JSON");
    assert_eq!((&document["openapi"], &document["info"]["version"]), (&json!("3.1.0"), &json!("1.1.0")));
    for path in ["/api/v1/ip", "/api/v1/ip/demo", "/api/v1/meta"] {
        let operation = &document["paths"][path]["get"]["responses"];
        let key = fresh_key(house, Scope::Full).await;
        let reply = caller.get(path, &[("authorization", &key.bearer())]).await.expect("an answer");
        let described = &operation[reply.status.to_string()]["content"]["application/json"]["schema"]["$ref"];
        let name = described.as_str().and_then(|name| name.rsplit('/').next()).expect("a schema");
        let properties = document["components"]["schemas"][name]["properties"].as_object().expect("properties");
        let answer = reply.json().expect("JSON");
        let answered = answer.as_object().expect("an object");
        assert!(answered.keys().all(|field| properties.contains_key(field)), "{path} answers more than {name} says");
        assert_eq!(answered.len(), properties.len(), "{path}");
    }
}
