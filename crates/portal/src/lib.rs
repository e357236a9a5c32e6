//! The pages for people: plain, static, without script. What they say, they say at addresses that error answers link to.
//!
//! Deliberately absent so far: accounts and sessions; an operator's command line stands in for them.

use axum::Router;
use axum::response::Html;
use axum::routing::get;

const DOCS: &str = include_str!("pages/docs.html");
const SIGNUP: &str = include_str!("pages/signup.html");
const ENTERPRISE: &str = include_str!("pages/enterprise.html");
const KEYS: &str = include_str!("pages/keys.html");

/// The pages.
pub fn router() -> Router {
    Router::new()
        .route("/docs", get(async || Html(DOCS)))
        .route("/signup", get(async || Html(SIGNUP)))
        .route("/enterprise", get(async || Html(ENTERPRISE)))
        .route("/keys", get(async || Html(KEYS)))
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
    fn every_field_is_explained() {
        for field in domain::Field::ALL {
            assert!(DOCS.contains(&format!("<td><code>{}</code>", field.name())), "{} is missing", field.name());
        }
    }
}
