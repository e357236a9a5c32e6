//! What can be told from the settings and the files that they name.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use ipseity_geo::{Atlas, AtlasReloader, AtlasSources};
use prometheus_client::registry::Registry;

use crate::cli::doctor::finding::{DoctorFinding, DoctorFindings, single_error};
use crate::cli::doctor::{error_sentence, to_sentence};
use crate::config::Config;
use crate::geo::update::GeoUpdater;
use crate::node::portal_setup::PortalSetup;
use crate::node::proxy_trust;
use crate::tasks::{acme, certificates};
use crate::telemetry::log;

/// Days before its end from which on a certificate is late: whoever renews it by itself does so earlier.
const CERTIFICATE_DAYS_LEFT_MIN: i64 = 14;
/// Days after which a geo database is old: all makers publish at least monthly.
const GEO_AGE_DAYS_MAX: u64 = 45;

/// Whether what stands in the settings can be meant; what is looked at more closely below is left out.
pub(super) fn check_settings(config: &Config) -> Vec<DoctorFinding> {
    let check = || -> Result<()> {
        log::configured_level(&config.log)?;
        GeoUpdater::open(&config.geo)?;
        acme::acme_options(&config.acme)?;
        let empty_atlas = Arc::new(AtlasReloader::open(AtlasSources::default(), false)?);
        PortalSetup::open(config, &empty_atlas, &mut Registry::default())?;
        Ok(())
    };
    match check() {
        Ok(()) => {
            DoctorFindings::new("settings").ok_unless_error(format!("Read by ipseity {}.", env!("CARGO_PKG_VERSION")))
        }
        Err(error) => single_error("settings", error_sentence(&error)),
    }
}

pub(super) fn check_certificates(config: &Config) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new("certificates");
    if config.edge.https.is_empty() {
        return findings.ok_unless_error("None is needed: [edge] https names no listener.");
    }
    let cert_resolver = match certificates::open_cert_resolver(config) {
        Ok(cert_resolver) => cert_resolver,
        Err(error) => return single_error("certificates", error_sentence(&error)),
    };
    let remaining = cert_resolver.expirations();
    for certificate in remaining.iter().filter(|certificate| certificate.days_left() < CERTIFICATE_DAYS_LEFT_MIN) {
        findings.error(format!(
            "The certificate for {} expires in {} days and should have been renewed: renew it now, and see why nobody did.",
            certificate.name, certificate.days_left()
        ));
    }
    if remaining.is_empty() {
        findings.warning("No certificate was issued yet: a running node asks the authority of [acme] for one.");
    }
    let summary: Vec<_> = remaining
        .iter()
        .map(|certificate| format!("{} for {} more days", certificate.name, certificate.days_left()))
        .collect();
    let summary = if summary.is_empty() { "awaited".to_owned() } else { summary.join(", ") };
    findings.ok_unless_error(format!("{summary}."))
}

pub(super) fn check_geo_databases(config: &Config) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new("geo data");
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let mut summary = Vec::new();
    for file in &config.geo.files {
        match database_age_days(file, now_s) {
            Ok((database, days)) if days > GEO_AGE_DAYS_MAX => findings.error(format!(
                "{database} in {} is {days} days old, and addresses have moved since: run `ipseity geo update`, or have it done by [geo] update_interval_h.",
                file.display()
            )),
            Ok((database, days)) => summary.push(format!("{database} of {days} days")),
            Err(error) => findings.error(format!(
                "{}: correct [geo] files, or fetch the file again with `ipseity geo update`.",
                to_sentence(&error.to_string()).trim_end_matches('.')
            )),
        }
    }
    let (hosting_lists, proxy_lists) = (config.geo.hosting_asn_lists.clone(), config.geo.proxy_asn_lists.clone());
    if let Err(error) = Atlas::open(&AtlasSources { hosting_lists, proxy_lists, ..AtlasSources::default() }) {
        findings.error(format!(
            "{}: correct the list, or its name in [geo] hosting_asn_lists or proxy_lists.",
            to_sentence(&error.to_string()).trim_end_matches('.')
        ));
    }
    if config.geo.files.is_empty() {
        findings
            .warning("No database is named, and every place and network in answers is null: name some in [geo] files.");
        summary.push("none".to_owned());
    }
    findings.ok_unless_error(to_sentence(&summary.join(", ")))
}

/// What a database is called, and how many days it is old.
fn database_age_days(file: &Path, now_s: u64) -> Result<(String, u64), ipseity_geo::GeoError> {
    let atlas = Atlas::open(&AtlasSources { files: vec![file.into()], ..AtlasSources::default() })?;
    let edition = atlas.editions().first();
    Ok(edition.map_or_else(Default::default, |edition| (edition.database_type.clone(), edition.age_days(now_s))))
}

pub(super) fn check_proxies(config: &Config) -> Vec<DoctorFinding> {
    let settings = &config.edge;
    match proxy_trust::build_trust(settings) {
        Ok(_) if settings.trusted_proxies.is_empty() => DoctorFindings::new("proxies")
            .ok_unless_error("Nobody's word is believed: every peer is itself the client."),
        Ok(_) => DoctorFindings::new("proxies").ok_unless_error(format!(
            "{} networks are believed, in {} alone.",
            settings.trusted_proxies.len(),
            settings.forwarding_header
        )),
        Err(error) => single_error("proxies", error_sentence(&error)),
    }
}

/// What the world should not reach, and what it cannot use.
pub(super) fn check_exposure(config: &Config) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new("exposure");
    let listen = config.ops.listen;
    if is_public(listen.ip()) {
        findings.error(format!(
            "The private listener is on the public address {listen}: set [ops] listen to one of this machine or of your own network."
        ));
    } else if !listen.ip().is_loopback() {
        findings.warning(format!("The private listener is on {listen}: let only your own network reach it."));
    }
    let base = &config.public.base_url;
    let is_local = ["://127.", "://localhost", "://[::1]"].iter().any(|host| base.contains(host));
    if config.portal.enabled && !base.starts_with("https://") && !is_local {
        findings.error(format!(
            "The portal is served at {base}, and browsers keep its cookies only over TLS: let [public] base_url begin with https://, or set [portal] enabled = false."
        ));
    }
    findings.ok_unless_error(format!("The private listener is on {listen}."))
}

/// Whether the Internet leads to this address.
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
            assert!(is_public(public.parse().expect("an address")), "{public}");
        }
        for private in
            ["127.0.0.1", "0.0.0.0", "10.1.2.3", "192.168.1.1", "100.64.0.1", "169.254.1.1", "::1", "::", "fd00::1"]
        {
            assert!(!is_public(private.parse().expect("an address")), "{private}");
        }
    }
}
