//! The pages for people: plain, static, without script. What they say, they say at addresses that error answers link to.
//!
//! Deliberately absent so far: accounts and sessions; an operator's command line stands in for them.

use axum::Router;
use axum::response::Html;
use axum::routing::get;

const FRAME: &str = include_str!("pages/frame.html");
const DOCS: &str = include_str!("pages/docs.html");
const SIGNUP: &str = include_str!("pages/signup.html");
const ENTERPRISE: &str = include_str!("pages/enterprise.html");
const KEYS: &str = include_str!("pages/keys.html");

/// Where the data's attributions stand on the docs page.
const DATA: &str = "<!-- attributions -->";
/// Where the service's own address stands on the docs page.
const BASE: &str = "<!-- base -->";

/// A sentence about where data comes from, and the address that it links to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribution {
    /// The sentence.
    pub text: String,
    /// The address, if its licence asks for one.
    pub url: Option<String>,
}

/// The pages. Whom the data is owed to is asked each time: it changes with the data.
pub fn router(base_url: &str, attributions: impl Fn() -> Vec<Attribution> + Clone + Send + Sync + 'static) -> Router {
    let page = framed("Documentation", DOCS).replace(BASE, &escaped(base_url.trim_end_matches('/')));
    Router::new()
        .route("/docs", get(async move || Html(docs(&page, &attributions()))))
        .route("/signup", get(async || Html(framed("Get a key", SIGNUP))))
        .route("/enterprise", get(async || Html(framed("More than the free plan", ENTERPRISE))))
        .route("/keys", get(async || Html(framed("Your keys", KEYS))))
}

/// A page's own part within the frame that all share.
fn framed(title: &str, body: &str) -> String {
    FRAME.replace("<!-- title -->", title).replace("<!-- body -->", body)
}

fn docs(page: &str, attributions: &[Attribution]) -> String {
    let item = |attribution: &Attribution| {
        let text = escaped(&attribution.text);
        match &attribution.url {
            Some(url) => format!("<li><a href=\"{}\">{text}</a></li>\n", escaped(url)),
            None => format!("<li>{text}</li>\n"),
        }
    };
    page.replace(DATA, &attributions.iter().map(item).collect::<String>())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frozen_anchor_is_a_heading_of_the_docs() {
        for anchor in [
            "missing_api_key",
            "invalid_api_key",
            "inactive-keys",
            "paused-keys",
            "daily-quota",
            "burst-limit",
            "demo-quota",
            "internal_error",
            "not_found",
            "method_not_allowed",
            "bad_request",
        ] {
            assert!(DOCS.contains(&format!("<h3 id=\"{anchor}\">")), "#{anchor} is missing");
        }
    }

    #[test]
    fn the_docs_name_and_link_whom_the_data_is_owed_to() {
        let linked = Attribution { text: "Data by A & B".to_owned(), url: Some("https://a.example".to_owned()) };
        let plain = Attribution { text: "By <C>".to_owned(), url: None };
        let page = docs(DOCS, &[linked, plain]);
        assert!(page.contains("<h2 id=\"data\">") && !page.contains(DATA));
        assert!(page.contains("<li><a href=\"https://a.example\">Data by A &amp; B</a></li>\n<li>By &lt;C&gt;</li>"));
    }

    #[test]
    fn every_field_is_explained() {
        for field in domain::Field::ALL {
            assert!(DOCS.contains(&format!("<td><code>{}</code>", field.name())), "{} is missing", field.name());
        }
    }
}
