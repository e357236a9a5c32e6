//! The public site: landing page, documentation as Markdown, and well-known files.

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::fixtures::samples::{PARIS, UNKNOWN_ADDRESS};
use ipseity_testkit::{TestClient, TestResponse};
use serde_json::Value;

use crate::errors::base_url;
use crate::fixture::{fresh_key, shared_deployment};
use crate::limits::rate_limit_headers;

/// The JSON on the landing page, without its markup.
fn displayed_json(page: &str) -> Value {
    let code = page
        .split_once("<code id=\"visitor-json\">")
        .and_then(|(_, rest)| rest.split_once("</code>"))
        .expect("response arrives")
        .0;
    let mut text = String::new();
    for part in code.split('<') {
        text.push_str(part.split_once('>').map_or(part, |(_, words)| words));
    }
    let text = text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&text).expect("valid JSON")
}

async fn get_ok(caller: &mut TestClient, path: &str, headers: &[(&str, &str)]) -> TestResponse {
    let reply = caller.get(path, headers).await.expect("response arrives");
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply
}

#[tokio::test(flavor = "multi_thread")]
async fn landing_page_shows_the_full_lookup_without_charge() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Full).await);
    let from = [("x-forwarded-for", PARIS.address), ("authorization", &key.bearer())];
    let before = rate_limit_headers(&get_ok(&mut caller, "/api/v1/ip", &from).await).remaining;
    let page = get_ok(&mut caller, "/", &from).await;
    let response = get_ok(&mut caller, "/api/v1/ip", &from).await;
    assert_eq!(rate_limit_headers(&response).remaining, before - 1, "the page used the quota");
    assert!(!page.headers.contains_key("x-ratelimit-limit") && !page.headers.contains_key("set-cookie"));
    assert_eq!(page.header("cache-control"), Some("no-store"), "the page contains an address");
    let text = page.text();
    assert_eq!(displayed_json(&text), response.json().expect("valid JSON"));
    for words in
        ["Paris, Île-de-France, France", "Orange (AS3215)", "Accurate to about 10 km", "class=\"dot\"", "GeoLite2"]
    {
        assert!(text.contains(words), "{words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn landing_page_shows_no_data_to_scripts() {
    let mut caller = shared_deployment().await.nodes[0].client();
    for script in [
        &[("origin", "https://shop.example.com")][..],
        &[("origin", "https://shop.example.com"), ("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")],
        &[("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")],
    ] {
        let page = get_ok(&mut caller, "/", &[&[("x-forwarded-for", PARIS.address)], script].concat()).await;
        assert_eq!(page.header("access-control-allow-origin"), Some("*"));
        assert_eq!(page.header("vary"), Some("Origin, Sec-Fetch-Dest, Sec-Fetch-Mode"));
        let text = page.text();
        assert!(!text.contains("Get a free key"), "sign-up is closed");
        assert!(
            !text.contains(PARIS.address) && !text.contains("Paris") && text.contains("Get an invitation"),
            "{script:?}"
        );
    }
    let navigation = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    let page = get_ok(&mut caller, "/", &[&[("x-forwarded-for", PARIS.address)], &navigation[..]].concat()).await;
    assert!(page.text().contains(PARIS.address));
}

#[tokio::test(flavor = "multi_thread")]
async fn landing_page_shows_data_to_a_network_60_times_a_minute() {
    let mut caller = shared_deployment().await.nodes[0].client();
    let mut shown_count = 0;
    for number in 1..=70 {
        let address = format!("2001:db8:60:1::{number:x}");
        shown_count +=
            usize::from(get_ok(&mut caller, "/", &[("x-forwarded-for", &address)]).await.text().contains(&address));
    }
    assert_eq!(shown_count, 60);
    let other = "2001:db8:60:2::1";
    assert!(get_ok(&mut caller, "/", &[("x-forwarded-for", other)]).await.text().contains(other));
}

#[tokio::test(flavor = "multi_thread")]
async fn landing_map_has_no_marker_without_a_location() {
    let mut caller = shared_deployment().await.nodes[0].client();
    for (address, words) in
        [("10.1.2.3", "Private address"), (UNKNOWN_ADDRESS, "Location unknown"), ("::1", "Private address")]
    {
        let page = get_ok(&mut caller, "/", &[("x-forwarded-for", address)]).await.text();
        assert!(
            page.contains(words) && page.contains("class=\"land\"") && !page.contains("class=\"dot\""),
            "{address}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn docs_pages_exist_as_markdown_and_in_llms_txt() {
    let node = &shared_deployment().await.nodes[0];
    let (mut caller, base) = (node.client(), base_url(node));
    let llms = get_ok(&mut caller, "/llms.txt", &[]).await.text();
    let pages: Vec<_> = llms.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let pages: Vec<_> =
        pages.into_iter().filter_map(|link| link.strip_prefix(base)).filter(|path| path.ends_with(".md")).collect();
    assert!(pages.len() >= 16 && pages.contains(&"/docs.md") && pages.contains(&"/docs/errors.md"), "{pages:?}");
    for path in pages {
        let markdown = get_ok(&mut caller, path, &[]).await;
        assert_eq!(markdown.header("content-type"), Some("text/markdown; charset=utf-8"), "{path}");
        let text = markdown.text();
        assert!(text.starts_with("# ") && !text.contains("{{"), "{path}");
        let page = get_ok(&mut caller, path.trim_end_matches(".md"), &[]).await;
        assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/html")), "{path}");
    }
    let missing = caller.get("/docs/nothing.md", &[]).await.expect("response arrives");
    assert_eq!(missing.status, 404);
    assert!(missing.text().contains("Page not found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn well_known_files_follow_their_standards() {
    let deployment = shared_deployment().await;
    let node = &deployment.nodes[0];
    let (mut caller, base) = (node.client(), base_url(node));
    for (path, kind) in [
        ("/robots.txt", "text/plain; charset=utf-8"),
        ("/sitemap.xml", "application/xml"),
        ("/favicon.ico", "image/x-icon"),
        ("/docs/search.json", "application/json"),
    ] {
        let reply = get_ok(&mut caller, path, &[]).await;
        assert_eq!(reply.header("content-type"), Some(kind), "{path}");
        assert!(reply.header("cache-control").is_some_and(|keep| keep.starts_with("public")), "{path}");
    }
    let catalog = get_ok(&mut caller, "/.well-known/api-catalog", &[]).await;
    assert!(catalog.header("content-type").is_some_and(|kind| kind.starts_with("application/linkset+json")));
    assert_eq!(catalog.header("link"), Some(&*format!("<{base}/.well-known/api-catalog>; rel=\"api-catalog\"")));
    let described = &catalog.json().expect("valid JSON")["linkset"][0]["service-desc"][0]["href"];
    assert_eq!(described, &Value::from(format!("{base}/api/v1/openapi.json")));
    let security = get_ok(&mut caller, "/.well-known/security.txt", &[]).await.text();
    let field =
        |name: &str| security.lines().find_map(|line| line.strip_prefix(name)).expect("field exists").to_owned();
    assert_eq!(field("Contact: "), format!("{base}/docs/privacy#report"));
    let expires: jiff::Timestamp = field("Expires: ").parse().expect("valid time");
    let days = (expires.as_second() - jiff::Timestamp::now().as_second()) / 86_400;
    assert!((1..365).contains(&days), "it is valid for {days} days");
    let contact = ("IPSEITY__PUBLIC__SECURITY_CONTACT".to_owned(), "mailto:security@example.com".to_owned());
    let support = ("IPSEITY__PUBLIC__CONTACT".to_owned(), "mailto:support@example.com".to_owned());
    let other = deployment.start_node(&Env::from([contact, support])).await.expect("node starts");
    let enterprise = get_ok(&mut other.client(), "/enterprise", &[]).await.text();
    assert!(enterprise.contains("href=\"mailto:support@example.com\">support@example.com</a>"), "{enterprise}");
    let security = get_ok(&mut other.client(), "/.well-known/security.txt", &[]).await.text();
    assert!(security.starts_with("Contact: mailto:security@example.com\n"));
}
