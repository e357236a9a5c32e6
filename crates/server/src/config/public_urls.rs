//! Public URLs: those in API responses, and whether clients must use HTTPS.

use ipseity_api::PublicUrls;

use crate::config::PublicConfig;

impl PublicConfig {
    /// Whether clients must use HTTPS.
    pub(crate) fn requires_https(&self) -> bool {
        self.base_url.starts_with("https://") && !self.allow_plain_http
    }
}

pub(crate) fn public_urls(public: &PublicConfig) -> PublicUrls {
    let base = public.base_url.trim_end_matches('/');
    let or_own_page = |configured: &str, path: &str| {
        if configured.is_empty() { format!("{base}{path}") } else { configured.to_owned() }
    };
    PublicUrls {
        base: base.to_owned(),
        docs: or_own_page(&public.docs_url, "/docs/errors"),
        signup: or_own_page(&public.signup_url, "/signup"),
        enterprise: or_own_page(&public.enterprise_url, "/enterprise"),
        dashboard: or_own_page("", "/keys"),
    }
}
