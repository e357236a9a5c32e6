//! Builds the pairing of a caller's addresses from the configuration.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use ipseity_api::{Pairing, PairingOptions, TOKEN_LIFETIME_S_MAX, TokenSealer};
use url::Url;

use crate::config::PublicConfig;

/// Validates the settings. `None` without URLs for one address family.
pub(super) fn open_pairing(public: &PublicConfig, sealer: &Arc<TokenSealer>) -> Result<Option<Pairing>> {
    if public.ipv4_url.is_empty() && public.ipv6_url.is_empty() {
        return Ok(None);
    }
    let base = Url::parse(&public.base_url).context("invalid [public] base_url")?;
    let [ipv4, ipv6] = family_urls(public, &base)?;
    ensure!(
        (1..=TOKEN_LIFETIME_S_MAX).contains(&public.pair_token_lifetime_s),
        "[public] pair_token_lifetime_s must be between 1 and {TOKEN_LIFETIME_S_MAX}"
    );
    let host = |url: &Url| url.host_str().unwrap_or_default().to_owned();
    let options = PairingOptions {
        ipv4_url: public.ipv4_url.trim_end_matches('/').to_owned(),
        ipv4_host: host(&ipv4),
        ipv6_url: public.ipv6_url.trim_end_matches('/').to_owned(),
        ipv6_host: host(&ipv6),
        base_origin: base.origin().ascii_serialization(),
        token_lifetime_s: public.pair_token_lifetime_s,
        tokens_per_subnet_per_min_max: public.pair_tokens_per_subnet_per_min_max,
        networks_max: public.pair_networks_max,
    };
    Ok(Some(Pairing::new(options, Arc::clone(sealer)).context("invalid [public] base_url")?))
}

/// The URLs for IPv4 and for IPv6.
fn family_urls(public: &PublicConfig, base: &Url) -> Result<[Url; 2]> {
    ensure!(
        !public.ipv4_url.is_empty() && !public.ipv6_url.is_empty(),
        "only one of [public] ipv4_url and ipv6_url is set. Set both, or neither."
    );
    let parse = |name: &str, text: &str| -> Result<Url> {
        let url = Url::parse(text).with_context(|| format!("invalid [public] {name}"))?;
        // A page over https cannot request a token over http.
        ensure!(
            url.scheme() == base.scheme() && url.has_host() && url.path() == "/" && url.query().is_none(),
            "[public] {name} must be {}://, a host name and nothing else, because base_url uses {0}",
            base.scheme()
        );
        Ok(url)
    };
    let urls = [parse("ipv4_url", &public.ipv4_url)?, parse("ipv6_url", &public.ipv6_url)?];
    let [ipv4, ipv6] = urls.each_ref().map(Url::host_str);
    ensure!(
        ipv4 != ipv6 && ipv4 != base.host_str() && ipv6 != base.host_str(),
        "[public] base_url, ipv4_url and ipv6_url must have three different host names"
    );
    Ok(urls)
}
