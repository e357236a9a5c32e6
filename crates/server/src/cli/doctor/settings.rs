//! Checks the settings and the files that they name.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use ipseity_geo::{Atlas, AtlasReloader, AtlasSources};

use crate::cli::doctor::finding::{DoctorFinding, DoctorFindings, error_sentence, single_error, to_sentence};
use crate::config::Config;
use crate::geo::update::GeoUpdater;
use crate::node::portal_setup::PortalSetup;
use crate::node::proxy_trust;
use crate::node::sealed_tokens::open_sealed_tokens;
use crate::tasks::{acme, certificates};
use crate::telemetry::log;

/// Automatic renewal happens earlier than this many days before the expiry.
const CERTIFICATE_DAYS_LEFT_MIN: i64 = 14;
/// All providers publish at least monthly.
const GEO_AGE_DAYS_MAX: u64 = 45;

/// Validates the settings that no other check covers.
pub(super) fn check_settings(config: &Config) -> Vec<DoctorFinding> {
    let check = || -> Result<()> {
        log::configured_level(&config.log)?;
        GeoUpdater::open(&config.geo)?;
        acme::acme_options(&config.acme)?;
        let empty_atlas = Arc::new(AtlasReloader::open(AtlasSources::default(), false)?);
        PortalSetup::check(config, &empty_atlas, &open_sealed_tokens(&config.public)?)?;
        Ok(())
    };
    match check() {
        Ok(()) => {
            DoctorFindings::new("settings").ok_unless_error(format!("Valid for ipseity {}.", env!("CARGO_PKG_VERSION")))
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
            "The certificate for {} expires in {} days. Renew it now and check why it was not renewed.",
            certificate.name,
            certificate.days_left()
        ));
    }
    if remaining.is_empty() {
        findings.warning("No certificate has been issued yet. A running node orders one from the server of [acme].");
    }
    let summary: Vec<_> = remaining
        .iter()
        .map(|certificate| format!("{} expires in {} days", certificate.name, certificate.days_left()))
        .collect();
    let summary = if summary.is_empty() { "pending".to_owned() } else { summary.join(", ") };
    findings.ok_unless_error(format!("{summary}."))
}

pub(super) fn check_geo_databases(config: &Config) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new("geo data");
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let mut summary = Vec::new();
    for file in &config.geo.files {
        match database_age_days(file, now_s) {
            Ok((database, days)) if days > GEO_AGE_DAYS_MAX => findings.error(format!(
                "{database} in {} is {days} days old. Run `ipseity geo update`, or set [geo] update_interval_h.",
                file.display()
            )),
            Ok((database, days)) => summary.push(format!("{database} is {days} days old")),
            Err(error) => findings.error(format!(
                "{} Correct [geo] files, or download the file again with `ipseity geo update`.",
                to_sentence(&error.to_string())
            )),
        }
    }
    let (hosting_lists, proxy_lists) = (config.geo.hosting_asn_lists.clone(), config.geo.proxy_asn_lists.clone());
    if let Err(error) = Atlas::open(&AtlasSources { hosting_lists, proxy_lists, ..AtlasSources::default() }) {
        findings.error(format!(
            "{} Correct the list, or its path in [geo] hosting_asn_lists or proxy_asn_lists.",
            to_sentence(&error.to_string())
        ));
    }
    if config.geo.files.is_empty() {
        findings.warning(
            "There is no geo database, so locations and networks in responses are null. Add databases to [geo] files.",
        );
        summary.push("no database".to_owned());
    }
    findings.ok_unless_error(to_sentence(&summary.join(", ")))
}

/// The type of a database and its age in days.
fn database_age_days(file: &Path, now_s: u64) -> Result<(String, u64), ipseity_geo::GeoError> {
    let atlas = Atlas::open(&AtlasSources { files: vec![file.into()], ..AtlasSources::default() })?;
    let edition = atlas.editions().first();
    Ok(edition.map_or_else(Default::default, |edition| (edition.database_type.clone(), edition.age_days(now_s))))
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
