//! The addresses that answers carry: as configured, or this service's own pages.

use api::Links;

use crate::config::Public;

pub(crate) fn links(public: &Public) -> Links {
    let base = public.base_url.trim_end_matches('/');
    let own = |configured: &str, page: &str| {
        if configured.is_empty() { format!("{base}{page}") } else { configured.to_owned() }
    };
    Links {
        base: base.to_owned(),
        docs: own(&public.docs_url, "/docs/errors"),
        signup: own(&public.signup_url, "/signup"),
        enterprise: own(&public.enterprise_url, "/enterprise"),
        dashboard: own("", "/keys"),
    }
}
