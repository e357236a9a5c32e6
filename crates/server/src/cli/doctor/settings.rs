//! Checks the settings and the files that they name.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Result;
use ipseity_geo::{AtlasReloader, AtlasSources};

use crate::cli::contract;
use crate::cli::doctor::finding::{DoctorFinding, DoctorFindings, error_sentence, single_error};
use crate::config::Config;
use crate::geo::update::GeoUpdater;
use crate::node::portal_setup::{PageSources, PortalSetup};
use crate::node::proxy_trust;
use crate::node::sealed_tokens::open_sealed_tokens;
use crate::tasks::blocked_networks::open_blocked_networks;
use crate::tasks::{acme, certificates};
use crate::telemetry::log;

/// Automatic renewal happens earlier than this many days before the expiry.
const CERTIFICATE_DAYS_LEFT_MIN: i64 = 14;

/// Validates the settings that no other check covers.
pub(super) fn check_settings(config: &Config) -> Vec<DoctorFinding> {
    let check = || -> Result<()> {
        log::configured_level(&config.log)?;
        GeoUpdater::open(&config.geo)?;
        open_blocked_networks(&config.edge)?;
        acme::acme_options(&config.acme)?;
        let empty_atlas = Arc::new(AtlasReloader::open(AtlasSources::default(), false)?);
        let sources = PageSources::without_banner(&empty_atlas, &open_sealed_tokens(&config.public)?);
        PortalSetup::check(config, sources)?;
        Ok(())
    };
    match check() {
        Ok(()) => {
            let mut findings = DoctorFindings::new("settings");
            if let Some(deviation) = contract::demo_deviation(config) {
                findings.warning(deviation);
            }
            findings.ok_unless_error(format!("Valid for ipseity {}.", env!("CARGO_PKG_VERSION")))
        }
        Err(error) => single_error("settings", error_sentence(&error)),
    }
}

pub(super) fn check_certificates(config: &Config) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new("certificates");
    if config.edge.https.is_empty() {
        return findings.ok_unless_error("Not needed: [edge] https is empty.");
    }
    let cert_resolver = match certificates::open_cert_resolver(config) {
        Ok(cert_resolver) => cert_resolver,
        Err(error) => return single_error("certificates", error_sentence(&error)),
    };
    let remaining = cert_resolver.expirations();
    for certificate in remaining.iter().filter(|certificate| certificate.days_left() < CERTIFICATE_DAYS_LEFT_MIN) {
        findings.error(format!(
            "The certificate for {} {}. Renew it now and check why it was not renewed.",
            certificate.name,
            format_expiry(certificate.days_left())
        ));
    }
    if remaining.is_empty() {
        findings.warning("No certificate has been issued yet. A running node orders one from the server of [acme].");
    }
    let summary: Vec<_> = remaining
        .iter()
        .map(|certificate| format!("{} {}", certificate.name, format_expiry(certificate.days_left())))
        .collect();
    let summary = if summary.is_empty() { "pending".to_owned() } else { summary.join(", ") };
    findings.ok_unless_error(format!("{summary}."))
}

fn format_expiry(days_left: i64) -> String {
    match days_left {
        ..0 => "has expired".to_owned(),
        0 => "expires within 24 hours".to_owned(),
        1 => "expires in 1 day".to_owned(),
        _ => format!("expires in {days_left} days"),
    }
}

pub(super) fn check_proxies(config: &Config) -> Vec<DoctorFinding> {
    let settings = &config.edge;
    match proxy_trust::build_trust(settings) {
        Ok(_) if settings.trusted_proxies.is_empty() => DoctorFindings::new("proxies")
            .ok_unless_error("No proxy is trusted; the peer of a connection is the client."),
        Ok(_) => DoctorFindings::new("proxies").ok_unless_error(format!(
            "{} networks are trusted, with the header {}.",
            settings.trusted_proxies.len(),
            settings.forwarding_header
        )),
        Err(error) => single_error("proxies", error_sentence(&error)),
    }
}

/// Checks that the ops listener is private, and that the portal and API keys use TLS.
pub(super) fn check_exposure(config: &Config) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new("exposure");
    let listen = config.ops.listen;
    if is_public(listen.ip()) {
        findings.error(format!(
            "The ops listener is on the public address {listen}. Set [ops] listen to a loopback or private address."
        ));
    } else if !listen.ip().is_loopback() {
        findings
            .warning(format!("The ops listener is on {listen}. Make sure that only your own network can reach it."));
    }
    let base = &config.public.base_url;
    let is_local = ["://127.", "://localhost", "://[::1]"].iter().any(|host| base.contains(host));
    if config.portal.enabled && !base.starts_with("https://") && !is_local {
        findings.error(format!(
            "The portal is served at {base}, but browsers accept its cookies only over TLS. Use https:// in [public] base_url, or set [portal] enabled = false."
        ));
    }
    if config.public.requires_https() && config.edge.https.is_empty() && config.edge.trusted_proxies.is_empty() {
        findings.error(format!(
            "Keys are accepted only over TLS, because [public] base_url is {base}, but there is no TLS listener and no trusted proxy. Add [edge] https or trusted_proxies, or set [public] allow_plain_http = true if TLS ends elsewhere."
        ));
    }
    findings.ok_unless_error(format!("The ops listener is on {listen}."))
}

fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [first, second, ..] = ip.octets();
            let is_shared = first == 100 && (64..128).contains(&second);
            !(ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified() || is_shared)
        }
        IpAddr::V6(ip) => ip.segments()[0] & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_recognized() {
        for public in ["203.0.113.9", "8.8.8.8", "2001:db8::1"] {
            assert!(is_public(public.parse().expect("valid address")), "{public}");
        }
        for private in
            ["127.0.0.1", "0.0.0.0", "10.1.2.3", "192.168.1.1", "100.64.0.1", "169.254.1.1", "::1", "::", "fd00::1"]
        {
            assert!(!is_public(private.parse().expect("valid address")), "{private}");
        }
    }
}
