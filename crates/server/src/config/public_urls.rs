//! URLs in API responses: the configured ones, or pages of this service.

use ipseity_api::PublicUrls;

use crate::config::PublicConfig;

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
