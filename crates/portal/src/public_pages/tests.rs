//! Tests of the router of a remote node.

use std::fs;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, LOCATION, ORIGIN, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use ipseity_domain::{Address, Client, ConnectionFacts};
use serde_json::{Value, json};
use tower::ServiceExt;
use url::Url;

use crate::assets;
use crate::host::{DataAttribution, HostServices, ProbeState, ServiceHealth, VisitorLookup};
use crate::legal::text::LegalTexts;
use crate::public_pages::home_redirect::redirect_to_home;
use crate::public_pages::{PublicPages, PublicPagesSettings};
use crate::routes::{PORTAL_ROUTES, PortalRoute, public_pages_router};

const HOME: &str = "https://home.example";

struct TestHost(Value);

impl HostServices for TestHost {
    fn banner(&self) -> String {
        String::new()
    }

    fn health(&self) -> ServiceHealth {
        ServiceHealth {
            answers_lookups: true,
            is_degraded: true,
            database: ProbeState::Elsewhere,
            counting: ProbeState::Failed,
            geo_age_days: Some(3),
            sites: Vec::new(),
        }
    }

    fn data_attributions(&self) -> Vec<DataAttribution> {
        Vec::new()
    }

    fn self_lookup(&self, _: &Client) -> Option<VisitorLookup> {
        let json = json!({ "ip": "198.51.100.7" }).to_string();
        Some(VisitorLookup { json, accuracy_km: None, elapsed: Duration::ZERO })
    }

    fn has_tickets(&self) -> bool {
        true
    }

    fn pair_urls(&self) -> Option<&[String; 2]> {
        None
    }

    fn paired_self_lookup(&self, _: &Client, _: &HeaderMap) -> Option<Vec<u8>> {
        None
    }

    fn fetch_scanner_keys(&self) -> Pin<Box<dyn Future<Output = Option<String>> + Send + '_>> {
        panic!("a remote node receives no reports")
    }

    fn openapi_document(&self) -> &Value {
        &self.0
    }
}

fn settings() -> PublicPagesSettings {
    PublicPagesSettings {
        base_url: "https://remote.example".to_owned(),
        portal_url: HOME.to_owned(),
        require_https: true,
        contact: String::new(),
        security_contact: String::new(),
        legal_texts: LegalTexts { terms: Some("# The terms\n\nBe kind.".to_owned()), privacy: None },
        demo_daily_limit: 1_000,
        signup_open: true,
        self_lookups_per_subnet_per_min_max: 1,
        page_timeout: Duration::from_secs(5),
    }
}

fn host() -> Box<dyn HostServices> {
    Box::new(TestHost(json!({ "paths": {}, "components": { "schemas": {}, "headers": {} } })))
}

fn remote_node() -> Router {
    public_pages_router(settings(), host()).routes
}

fn client(is_encrypted: bool) -> Client {
    let connection = ConnectionFacts { is_encrypted: Some(is_encrypted), ..ConnectionFacts::default() };
    Client { address: Address::new(Ipv4Addr::LOCALHOST.into()), connection }
}

fn request(method: Method, target: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri(target).extension(client(true));
    request.body(Body::empty()).expect("request is valid")
}

async fn send(node: &Router, request: Request<Body>) -> Response {
    let Ok(response) = node.clone().oneshot(request).await;
    response
}

async fn get_page(node: &Router, target: &str) -> Response {
    send(node, request(Method::GET, target)).await
}

async fn text(response: Response) -> String {
    let body = to_bytes(response.into_body(), usize::MAX).await.expect("body is complete");
    String::from_utf8(body.to_vec()).expect("body is text")
}

fn location(response: &Response) -> &str {
    response.headers().get(LOCATION).map_or("", |location| location.to_str().expect("location is ASCII"))
}

#[track_caller]
fn assert_redirects(response: &Response, status: StatusCode, target: &str) {
    assert_eq!((response.status(), location(response)), (status, target));
    assert_eq!(response.headers()[CACHE_CONTROL], "no-store", "{target}");
    assert!(!response.headers().contains_key(SET_COOKIE), "{target}");
}

/// The path of a route, with values for its parameters.
fn example_path(route: &PortalRoute) -> String {
    route
        .path
        .replace("{token}", &"ab".repeat(32))
        .replace("{id}", "7")
        .replace("{page}", "limits")
        .replace("{epoch}", "1")
}

#[tokio::test]
async fn remote_node_serves_the_pages_and_files_without_accounts() {
    let node = remote_node();
    let pages: Vec<_> = PORTAL_ROUTES.iter().filter(|route| route.is_on_every_node).map(example_path).collect();
    assert_eq!(
        pages,
        ["/", "/docs", "/docs/search", "/docs/limits", "/reference", "/enterprise", "/status", "/terms", "/privacy"]
    );
    for path in pages.iter().filter(|path| *path != "/privacy") {
        let response = get_page(&node, path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert!(response.headers().contains_key(CONTENT_SECURITY_POLICY), "{path}");
        assert!(!response.headers().contains_key(SET_COOKIE), "{path}");
        let page = text(response).await;
        assert!(page.contains("href=\"/signin\"") && page.contains("href=\"/signup\""), "{path}");
        assert_eq!(page.contains("Get a free key"), path == "/", "sign-up is open");
    }
    let status = text(get_page(&node, "/status").await).await;
    assert!(
        status.contains("Lookups continue with local limits")
            && status.contains("href=\"https://home.example/status\""),
        "{status}"
    );
    let asset = format!("/assets/{}/app.css", assets::VERSION);
    for path in [
        "/robots.txt",
        "/sitemap.xml",
        "/llms.txt",
        "/llms-full.txt",
        "/.well-known/security.txt",
        "/status.json",
        "/changelog.xml",
        "/docs.md",
        &asset,
    ] {
        assert_eq!(get_page(&node, path).await.status(), StatusCode::OK, "{path}");
    }
    assert!(text(get_page(&node, "/sitemap.xml").await).await.contains("<loc>https://remote.example/docs</loc>"));
    let all_docs = text(get_page(&node, "/llms-full.txt").await).await;
    assert!(
        all_docs.contains("# Quick start") && all_docs.contains("# Privacy") && !all_docs.contains("{{"),
        "{all_docs}"
    );
    // A relative link would lead to another page than in the file that it comes from.
    let links = all_docs.split("](").skip(1).map(|text| text.split(')').next().unwrap_or_default());
    let relative: Vec<_> = links
        .filter(|link| !["https://", "http://", "mailto:", "#", "/"].iter().any(|p| link.starts_with(p)))
        .collect();
    assert!(relative.is_empty(), "{relative:?}");
}

#[tokio::test]
async fn changelog_page_names_its_feed() {
    let node = remote_node();
    let link =
        "<link rel=\"alternate\" type=\"application/atom+xml\" title=\"Ipseity changelog\" href=\"/changelog.xml\">";
    for (path, has_feed) in [("/docs/changelog", true), ("/docs/limits", false)] {
        assert_eq!(text(get_page(&node, path).await).await.contains(link), has_feed, "{path}");
    }
    let feed = get_page(&node, "/changelog.xml").await;
    assert_eq!(feed.headers()[CONTENT_TYPE], "application/atom+xml; charset=utf-8");
    let feed = text(feed).await;
    assert!(feed.contains("<link rel=\"self\" href=\"https://remote.example/changelog.xml\"/>"), "{feed}");
}

#[tokio::test]
async fn every_file_of_the_docs_is_a_page_in_the_sitemap_and_in_llms_txt() {
    let node = remote_node();
    let (sitemap, llms) =
        (text(get_page(&node, "/sitemap.xml").await).await, text(get_page(&node, "/llms.txt").await).await);
    let dir = format!("{}/../../docs/site", env!("CARGO_MANIFEST_DIR"));
    for file in fs::read_dir(dir).expect("list the directory") {
        let name = file.expect("read the directory").file_name().into_string().expect("name is text");
        let path = if name == "index.md" { "/docs.md".to_owned() } else { format!("/docs/{name}") };
        assert!(llms.contains(&format!("https://remote.example{path})")), "{path} is not in llms.txt");
        let page = format!("<loc>https://remote.example{}</loc>", path.trim_end_matches(".md"));
        assert!(sitemap.contains(&page), "{page} is not in the sitemap");
    }
}

#[tokio::test]
async fn links_to_moved_docs_pages_and_their_anchors_still_work() {
    let node = remote_node();
    for suffix in ["", ".md"] {
        let response = get_page(&node, &format!("/docs/browsers{suffix}")).await;
        assert_eq!(response.status(), StatusCode::PERMANENT_REDIRECT);
        assert_eq!(location(&response), format!("/docs/web-page{suffix}"));
    }
    assert_eq!(location(&get_page(&node, "/docs/index.md").await), "/docs.md");
    let page = text(get_page(&node, "/docs/web-page").await).await;
    for anchor in ["public-keys", "headers", "preflight", "csp"] {
        assert!(page.contains(&format!("id=\"{anchor}\"")), "{anchor}");
    }
    assert!(page.contains("/api/v1/tickets") && !page.contains("{{"), "the samples are filled in");
}

#[tokio::test]
async fn remote_node_redirects_every_other_route_to_home() {
    let node = remote_node();
    for route in PORTAL_ROUTES.iter().filter(|route| !route.is_on_every_node) {
        let path = example_path(route);
        let (with_query, target) = (format!("{path}?a=b&next=//evil.example"), format!("{HOME}{path}"));
        if route.method == "get" {
            for method in [Method::GET, Method::HEAD] {
                let response = send(&node, request(method, &with_query)).await;
                assert_redirects(&response, StatusCode::TEMPORARY_REDIRECT, &format!("{HOME}{with_query}"));
                assert!(response.headers().contains_key(CONTENT_SECURITY_POLICY), "{path}");
            }
            assert_redirects(&get_page(&node, &path).await, StatusCode::TEMPORARY_REDIRECT, &target);
        } else {
            let response = send(&node, request(Method::POST, &with_query)).await;
            assert_redirects(&response, StatusCode::SEE_OTHER, &target);
        }
    }
    let report = send(&node, request(Method::POST, "/leaked-keys/github")).await;
    assert_redirects(&report, StatusCode::SEE_OTHER, &format!("{HOME}/leaked-keys/github"));
}

#[tokio::test]
async fn redirect_never_leaves_the_host_of_home() {
    let node = remote_node();
    let long_query = format!("/keys?q={}", "%0d%0a".repeat(1000));
    for hostile in [
        "/keys/%2F..",
        "/keys/..%2f..%2f%2fevil.example",
        "/keys/%0d%0aX:y",
        "/keys/@evil.example",
        "/link/\\evil.example",
        "/keys?next=https://evil.example/\\@",
        "/signin?%0d%0aSet-Cookie:a=b",
        "http://evil.example/keys",
        "http://user@evil.example:81/keys?a",
        &long_query,
    ] {
        for method in [Method::GET, Method::HEAD, Method::POST] {
            // Not all of these routes have a form.
            let response = send(&node, request(method, hostile)).await;
            if response.status() == StatusCode::METHOD_NOT_ALLOWED {
                continue;
            }
            assert!(response.status().is_redirection(), "{hostile}");
            assert!(location(&response).starts_with("https://home.example/"), "{hostile}");
            let target = Url::parse(location(&response)).expect("location is a URL");
            assert_eq!((target.host_str(), target.port(), target.username()), (Some("home.example"), None, ""));
            assert!(!response.headers().contains_key(SET_COOKIE), "{hostile}");
        }
    }
    for unknown in ["//evil.example/x", "//evil.example/keys", "/%0d%0aX:y", "/.//evil.example", "/keys//evil.example/"]
    {
        let response = get_page(&node, unknown).await;
        assert_eq!((response.status(), location(&response)), (StatusCode::NOT_FOUND, ""), "{unknown}");
    }
}

#[tokio::test]
async fn redirect_of_any_path_starts_with_the_portal_url() {
    let node = Router::new().fallback(redirect_to_home).with_state(PublicPages::new(settings(), host(), 10));
    for (hostile, target) in [
        ("//evil.example/x", "https://home.example//evil.example/x"),
        ("/%0d%0aX:y", "https://home.example/%0d%0aX:y"),
        ("http://evil.example?a", "https://home.example/?a"),
    ] {
        let response = get_page(&node, hostile).await;
        assert_redirects(&response, StatusCode::TEMPORARY_REDIRECT, target);
        assert_eq!(Url::parse(target).expect("target is a URL").host_str(), Some("home.example"));
    }
}

#[tokio::test]
async fn remote_node_ignores_a_session_cookie() {
    let node = remote_node();
    let cookie = format!("__Host-ipseity={}", "ab".repeat(32));
    for (path, status) in [("/docs", StatusCode::OK), ("/docs/unknown", StatusCode::NOT_FOUND)] {
        let mut with_cookie = request(Method::GET, path);
        with_cookie.headers_mut().insert(COOKIE, HeaderValue::from_str(&cookie).expect("cookie is ASCII"));
        let response = send(&node, with_cookie).await;
        assert_eq!(response.status(), status);
        assert!(!response.headers().contains_key(SET_COOKIE), "the cookie of home stays");
        let page = text(response).await;
        assert!(page.contains("href=\"/signin\"") && !page.contains("/signout"), "{path}");
        assert_eq!(page, text(get_page(&node, path).await).await, "{path}");
    }
}

#[tokio::test]
async fn operator_text_is_shown_and_linked_if_it_is_set() {
    let node = remote_node();
    let terms = text(get_page(&node, "/terms").await).await;
    assert!(terms.contains("<h1>The terms</h1>") && terms.contains("<p>Be kind.</p>"), "{terms}");
    assert!(terms.contains("<a href=\"/terms\">Terms</a>") && terms.contains("<a href=\"/docs/privacy\">"), "{terms}");
    let sitemap = text(get_page(&node, "/sitemap.xml").await).await;
    assert!(sitemap.contains("/terms</loc>") && !sitemap.contains("example/privacy</loc>"), "{sitemap}");
    let missing = get_page(&node, "/privacy").await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert!(text(missing).await.contains("<h1>Page not found</h1>"));
}

#[tokio::test]
async fn remote_node_has_a_page_for_unknown_paths() {
    let not_found = public_pages_router(settings(), host()).not_found;
    let response = get_page(&not_found, "/pricing").await;
    assert_eq!((response.status(), location(&response)), (StatusCode::NOT_FOUND, ""));
    assert!(text(response).await.contains("<h1>Page not found</h1>"));
}

#[tokio::test]
async fn remote_node_blocks_forms_of_other_sites() {
    let node = remote_node();
    let mut cross_site = request(Method::POST, "/signin");
    cross_site.headers_mut().insert(ORIGIN, HeaderValue::from_static("https://evil.example"));
    cross_site.headers_mut().insert("sec-fetch-site", HeaderValue::from_static("cross-site"));
    let response = send(&node, cross_site).await;
    assert_eq!((response.status(), location(&response)), (StatusCode::FORBIDDEN, ""));
    assert!(text(response).await.contains("Request blocked"));
}

#[tokio::test]
async fn remote_node_redirects_plain_http_to_its_own_https() {
    let node = remote_node();
    let mut plaintext = request(Method::GET, "/docs?a");
    plaintext.extensions_mut().insert(client(false));
    let response = send(&node, plaintext).await;
    assert_eq!(
        (response.status(), location(&response)),
        (StatusCode::PERMANENT_REDIRECT, "https://remote.example/docs?a")
    );
}

#[tokio::test]
async fn remote_node_limits_lookups_on_the_landing_page() {
    let node = remote_node();
    for is_shown in [true, false] {
        assert_eq!(text(get_page(&node, "/").await).await.contains("198.51.100.7"), is_shown);
    }
}
