//! The front door: the landing page, the documentation as Markdown, and the files for programs that read sites.

use domain::Scope;
use serde_json::Value;
use testkit::node::Env;
use testkit::samples::{PARIS, UNKNOWN};
use testkit::{Caller, Reply};

use crate::errors::base_url;
use crate::limits::told;
use crate::shared::{fresh_key, house};

/// The JSON that the landing page shows, without its colours.
fn shown(page: &str) -> Value {
    let code =
        page.split_once("<code id=\"own\">").and_then(|(_, rest)| rest.split_once("</code>")).expect("the answer").0;
    let mut text = String::new();
    for piece in code.split('<') {
        text.push_str(piece.split_once('>').map_or(piece, |(_, words)| words));
    }
    let text = text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&text).expect("JSON")
}

async fn get(caller: &mut Caller, path: &str, headers: &[(&str, &str)]) -> Reply {
    let reply = caller.get(path, headers).await.expect("an answer");
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply
}

#[tokio::test(flavor = "multi_thread")]
async fn the_landing_page_shows_a_visitor_what_a_full_key_would_and_charges_nobody() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Full).await);
    let from = [("x-forwarded-for", PARIS.address), ("authorization", &key.bearer())];
    let before = told(&get(&mut caller, "/api/v1/ip", &from).await).remaining;
    let page = get(&mut caller, "/", &from).await;
    let answer = get(&mut caller, "/api/v1/ip", &from).await;
    assert_eq!(told(&answer).remaining, before - 1, "the page was charged");
    assert!(!page.headers.contains_key("x-ratelimit-limit") && !page.headers.contains_key("set-cookie"));
    assert_eq!(page.header("cache-control"), Some("no-store"), "it holds an address");
    let text = page.text();
    assert_eq!(shown(&text), answer.json().expect("JSON"));
    for words in ["Paris, Île-de-France, France", "Orange (AS3215)", "within 10 km", "class=\"dot\"", "GeoLite2"] {
        assert!(text.contains(words), "{words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_no_place_is_shown_a_map_without_a_mark() {
    let mut caller = house().await.nodes[0].caller();
    for (address, words) in [("10.1.2.3", "private network"), (UNKNOWN, "we do not guess"), ("::1", "private network")]
    {
        let page = get(&mut caller, "/", &[("x-forwarded-for", address)]).await.text();
        assert!(
            page.contains(words) && page.contains("class=\"land\"") && !page.contains("class=\"dot\""),
            "{address}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_page_of_the_documentation_is_there_as_markdown_and_listed_for_models() {
    let node = &house().await.nodes[0];
    let (mut caller, base) = (node.caller(), base_url(node));
    let llms = get(&mut caller, "/llms.txt", &[]).await.text();
    let pages: Vec<_> = llms.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let pages: Vec<_> =
        pages.into_iter().filter_map(|link| link.strip_prefix(base)).filter(|path| path.ends_with(".md")).collect();
    assert!(pages.len() >= 16 && pages.contains(&"/docs.md") && pages.contains(&"/docs/errors.md"), "{pages:?}");
    for path in pages {
        let markdown = get(&mut caller, path, &[]).await;
        assert_eq!(markdown.header("content-type"), Some("text/markdown; charset=utf-8"), "{path}");
        let text = markdown.text();
        assert!(text.starts_with("# ") && !text.contains("{{"), "{path}");
        let page = get(&mut caller, path.trim_end_matches(".md"), &[]).await;
        assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/html")), "{path}");
    }
    let missing = caller.get("/docs/nothing.md", &[]).await.expect("an answer");
    assert_eq!(missing.status, 404);
    assert!(missing.text().contains("There is no such page"));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_for_programs_are_what_their_standards_say() {
    let house = house().await;
    let node = &house.nodes[0];
    let (mut caller, base) = (node.caller(), base_url(node));
    for (path, kind) in [
        ("/robots.txt", "text/plain; charset=utf-8"),
        ("/sitemap.xml", "application/xml"),
        ("/favicon.ico", "image/x-icon"),
        ("/docs/search.json", "application/json"),
    ] {
        let reply = get(&mut caller, path, &[]).await;
        assert_eq!(reply.header("content-type"), Some(kind), "{path}");
        assert!(reply.header("cache-control").is_some_and(|keep| keep.starts_with("public")), "{path}");
    }
    let catalog = get(&mut caller, "/.well-known/api-catalog", &[]).await;
    assert!(catalog.header("content-type").is_some_and(|kind| kind.starts_with("application/linkset+json")));
    assert_eq!(catalog.header("link"), Some(&*format!("<{base}/.well-known/api-catalog>; rel=\"api-catalog\"")));
    let described = &catalog.json().expect("JSON")["linkset"][0]["service-desc"][0]["href"];
    assert_eq!(described, &Value::from(format!("{base}/api/v1/openapi.json")));
    let security = get(&mut caller, "/.well-known/security.txt", &[]).await.text();
    let field = |name: &str| security.lines().find_map(|line| line.strip_prefix(name)).expect("a field").to_owned();
    assert_eq!(field("Contact: "), format!("{base}/docs/privacy#report"));
    let expires: jiff::Timestamp = field("Expires: ").parse().expect("a time");
    let days = (expires.as_second() - jiff::Timestamp::now().as_second()) / 86_400;
    assert!((1..365).contains(&days), "it holds for {days} days");
    let contact = ("IPSEITY__PUBLIC__SECURITY_CONTACT".to_owned(), "mailto:security@example.com".to_owned());
    let other = house.start_node(&Env::from([contact])).await.expect("a node");
    let security = get(&mut other.caller(), "/.well-known/security.txt", &[]).await.text();
    assert!(security.starts_with("Contact: mailto:security@example.com\n"));
}
