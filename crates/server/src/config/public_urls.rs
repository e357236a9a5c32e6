//! Public URLs: those in API responses, and whether clients must use HTTPS.

use anyhow::{Context, Result, ensure};
use ipseity_api::PublicUrls;
use url::Url;

use crate::config::{Config, PublicConfig};

impl Config {
    /// Brings the URLs into one form, because others compare and concatenate their texts: `HTTPS://` and a space before it
    /// would turn off the HTTPS requirement.
    pub(super) fn normalize_urls(&mut self) -> Result<()> {
        let public = &mut self.public;
        normalize_base_url("[public] base_url", &mut public.base_url)?;
        for (name, text) in [
            ("[public] ipv4_url", &mut public.ipv4_url),
            ("[public] ipv6_url", &mut public.ipv6_url),
            ("[home] portal_url", &mut self.home.portal_url),
        ] {
            if !text.is_empty() {
                normalize_base_url(name, text)?;
            }
        }
        for (name, text) in [
            ("[public] docs_url", &mut public.docs_url),
            ("[public] signup_url", &mut public.signup_url),
            ("[public] enterprise_url", &mut public.enterprise_url),
        ] {
            if !text.is_empty() {
                ensure!(
                    !has_user(&normalize_url(name, text)?),
                    "{name} must have no user, because responses contain it"
                );
            }
        }
        ensure!(!public.docs_url.contains('#'), "[public] docs_url must have no #, because anchors are appended to it");
        if !self.otlp.endpoint.is_empty() {
            normalize_url("[otlp] endpoint", &mut self.otlp.endpoint)?;
        }
        Ok(())
    }
}

/// Normalizes a URL to which paths are appended.
fn normalize_base_url(name: &str, text: &mut String) -> Result<()> {
    let url = normalize_url(name, text)?;
    ensure!(
        !has_user(&url) && url.query().is_none() && url.fragment().is_none(),
        "{name} must have no user, no ? and no #, because paths are appended to it"
    );
    Ok(())
}

/// The value is not printed, because it may contain a password.
fn normalize_url(name: &str, text: &mut String) -> Result<Url> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.with_context(|| {
        format!("{name} must be a URL that starts with https:// or http://, such as https://ip.example.com")
    })?;
    let has_slash = text.trim_end().ends_with('/');
    url.as_str().clone_into(text);
    if !has_slash && text.ends_with('/') {
        text.pop();
    }
    Ok(url)
}

fn has_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

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
