//! Files for programs: robots.txt, sitemap, llms.txt, security.txt, API catalog.

use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LINK};
use jiff::Timestamp;
use serde_json::json;

use crate::docs;
use crate::docs::article::DocsArticle;
use crate::docs::changelog_feed::CHANGELOG_FEED_PATH;
use crate::docs::index::with_attributions;
use crate::public_pages::{PageState, PublicPages};
use crate::status;

const API_CATALOG_PATH: &str = "/.well-known/api-catalog";
/// How long security.txt is valid after it is fetched. RFC 9116 recommends less than a year.
const SECURITY_TXT_VALIDITY: Duration = Duration::from_secs(180 * 86_400);

/// The routes of the files.
pub(crate) fn router<S: PageState>() -> Router<S> {
    Router::new()
        .route("/robots.txt", get(robots_txt))
        .route("/sitemap.xml", get(sitemap_xml))
        .route("/llms.txt", get(llms_txt))
        .route("/llms-full.txt", get(llms_full_txt))
        .route("/status.json", get(status::serve_status))
        .route(CHANGELOG_FEED_PATH, get(docs::serve_changelog_feed))
        .route("/docs.md", get(docs::index_markdown))
        .route("/docs/search.json", get(docs::serve_search_index))
        .route("/.well-known/security.txt", get(security_txt))
        .route(API_CATALOG_PATH, get(api_catalog))
        .route("/favicon.ico", get(favicon))
}

fn text_file(content_type: &'static str, text: String) -> Response {
    ([(CONTENT_TYPE, content_type), (CACHE_CONTROL, "public, max-age=3600")], text).into_response()
}

async fn robots_txt(pages: PublicPages) -> Response {
    let base = &pages.settings.base_url;
    // API requests are charged, and member pages redirect crawlers to the sign-in page.
    let text = format!(
        "User-agent: *\nDisallow: /api/v1/ip\nDisallow: /keys\nDisallow: /usage\nDisallow: /account\nDisallow: /link/\nDisallow: /docs/search?\n\n\
         Sitemap: {base}/sitemap.xml\n"
    );
    text_file("text/plain; charset=utf-8", text)
}

async fn sitemap_xml(pages: PublicPages) -> Response {
    let base = &pages.settings.base_url;
    let portal_paths = ["/", "/reference", "/enterprise", "/status"].into_iter().chain(pages.legal_pages.paths());
    let paths = portal_paths.map(str::to_owned).chain(pages.docs_index.articles().map(DocsArticle::path));
    let entries: String = paths.map(|path| format!("<url><loc>{base}{path}</loc></url>\n")).collect();
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n{entries}</urlset>\n"
    );
    text_file("application/xml", text)
}

/// llmstxt.org: a summary of the service, and every page as Markdown.
async fn llms_txt(pages: PublicPages) -> Response {
    let base = &pages.settings.base_url;
    let mut text = format!(
        "# Ipseity\n\n\
         > A JSON API that returns the caller's IP address, location, network and connection. Send a GET request to {base}/api/v1/ip with an API key \
         (`Authorization: Bearer <API_KEY>`). It looks up only the caller's address, and stores neither addresses nor responses.\n\n\
         Limits: 10,000 requests per key per day on the free plan. More than 300 requests in 60 seconds pause the key until its owner resumes it. \
         The demo at {base}/api/v1/ip/demo needs no key; all callers share {} requests per day.\n\n\
         ## API\n\n\
         - [OpenAPI 3.1, JSON]({base}/api/v1/openapi.json): every operation, field, header, status and example\n\
         - [OpenAPI 3.1, YAML]({base}/api/v1/openapi.yaml): the same\n\
         - [All pages in one file]({base}/llms-full.txt)\n",
        pages.settings.demo_daily_limit
    );
    for (group, articles) in pages.docs_index.groups() {
        text.push_str(&format!("\n## {group}\n\n"));
        for page in articles {
            text.push_str(&format!("- [{}]({base}{}.md): {}\n", page.title, page.path(), page.description));
        }
    }
    text_file("text/plain; charset=utf-8", text)
}

/// Every page as Markdown, in one file.
async fn llms_full_txt(pages: PublicPages) -> Response {
    let attributions = pages.host.data_attributions();
    let texts: Vec<_> =
        pages.docs_index.articles().map(|page| with_attributions(&page.markdown, &attributions)).collect();
    text_file("text/plain; charset=utf-8", texts.join("\n"))
}

/// RFC 9116.
async fn security_txt(pages: PublicPages) -> Response {
    let (base, contact) = (&pages.settings.base_url, &pages.settings.security_contact);
    let contact = if contact.is_empty() { format!("{base}/docs/privacy#report") } else { contact.clone() };
    let expires =
        Timestamp::from_second((Timestamp::now() + SECURITY_TXT_VALIDITY).as_second()).unwrap_or(Timestamp::MAX);
    let text = format!(
        "Contact: {contact}\nExpires: {expires}\nPreferred-Languages: en\nPolicy: {base}/docs/privacy#report\n\
         Canonical: {base}/.well-known/security.txt\n"
    );
    text_file("text/plain; charset=utf-8", text)
}

/// RFC 9727: links to the descriptions of the API.
async fn api_catalog(pages: PublicPages) -> Response {
    let base = &pages.settings.base_url;
    let link = |path: &str, content_type: &str| json!([{ "href": format!("{base}{path}"), "type": content_type }]);
    let linkset = json!({ "linkset": [{
        "anchor": format!("{base}/api/v1/ip"),
        "service-desc": [
            { "href": format!("{base}/api/v1/openapi.json"), "type": "application/json" },
            { "href": format!("{base}/api/v1/openapi.yaml"), "type": "application/yaml" },
        ],
        "service-doc": link("/docs", "text/html"),
        "service-meta": link("/api/v1/meta", "application/json"),
        "status": link("/status.json", "application/json"),
        "terms-of-service": link("/docs/limits", "text/html"),
    }] });
    let content_type = "application/linkset+json; profile=\"https://www.rfc-editor.org/info/rfc9727\"";
    let link_header = format!("<{base}{API_CATALOG_PATH}>; rel=\"api-catalog\"");
    ([(LINK, link_header)], text_file(content_type, format!("{linkset}\n"))).into_response()
}

async fn favicon() -> Response {
    let headers = [(CONTENT_TYPE, "image/x-icon"), (CACHE_CONTROL, "public, max-age=86400")];
    (headers, &include_bytes!("../assets/favicon.ico")[..]).into_response()
}
