//! What can be told from the settings and the files that they name.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use geo::{Atlas, Shelf, Sources};
use prometheus_client::registry::Registry;

use super::finding::{Finding, Findings, wrong};
use super::{sentence, told};
use crate::config::Config;
use crate::pages::Pages;
use crate::update::Updater;
use crate::{certificates, proxies, renewal, telemetry};

/// Days before its end from which on a certificate is late: whoever renews it by itself does so earlier.
const CERTIFICATE_DAYS_MIN: i64 = 14;
/// Days after which a geo database is old: all makers publish at least monthly.
const GEO_AGE_DAYS_MAX: u64 = 45;

/// Whether what stands in the settings can be meant; what is looked at more closely below is left out.
pub(super) fn readable(config: &Config) -> Vec<Finding> {
    let read = || -> Result<()> {
        telemetry::level(&config.log)?;
        Updater::open(&config.geo)?;
        renewal::options(&config.acme)?;
        let no_data = Arc::new(Shelf::open(Sources::default(), false)?);
        Pages::open(config, &no_data, &mut Registry::default())?;
        Ok(())
    };
    match read() {
        Ok(()) => Findings::new("settings").else_well(format!("Read by ipseity {}.", env!("CARGO_PKG_VERSION"))),
        Err(error) => wrong("settings", told(&error)),
    }
}

pub(super) fn certificates(config: &Config) -> Vec<Finding> {
    let mut findings = Findings::new("certificates");
    if config.edge.https.is_empty() {
        return findings.else_well("None is needed: [edge] https names no listener.");
    }
    let wardrobe = match certificates::open(config) {
        Ok(wardrobe) => wardrobe,
        Err(error) => return wrong("certificates", told(&error)),
    };
    let remaining = wardrobe.remaining();
    for certificate in remaining.iter().filter(|certificate| certificate.days < CERTIFICATE_DAYS_MIN) {
        findings.wrong(format!(
            "The certificate for {} expires in {} days and should have been renewed: renew it now, and see why nobody did.",
            certificate.name, certificate.days
        ));
    }
    if remaining.is_empty() {
        findings.note("No certificate was issued yet: a running node asks the authority of [acme] for one.");
    }
    let all: Vec<_> = remaining.iter().map(|one| format!("{} for {} more days", one.name, one.days)).collect();
    let all = if all.is_empty() { "awaited".to_owned() } else { all.join(", ") };
    findings.else_well(format!("{all}."))
}

pub(super) fn geo(config: &Config) -> Vec<Finding> {
    let mut findings = Findings::new("geo data");
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let mut all = Vec::new();
    for file in &config.geo.files {
        match age(file, now_s) {
            Ok((database, days)) if days > GEO_AGE_DAYS_MAX => findings.wrong(format!(
                "{database} in {} is {days} days old, and addresses have moved since: run `ipseity geo update`, or have it done by [geo] update_interval_h.",
                file.display()
            )),
            Ok((database, days)) => all.push(format!("{database} of {days} days")),
            Err(error) => findings.wrong(format!(
                "{}: correct [geo] files, or fetch the file again with `ipseity geo update`.",
                sentence(&error.to_string()).trim_end_matches('.')
            )),
        }
    }
    let (hosting_lists, proxy_lists) = (config.geo.hosting_lists.clone(), config.geo.proxy_lists.clone());
    if let Err(error) = Atlas::open(&Sources { hosting_lists, proxy_lists, ..Sources::default() }) {
        findings.wrong(format!(
            "{}: correct the list, or its name in [geo] hosting_lists or proxy_lists.",
            sentence(&error.to_string()).trim_end_matches('.')
        ));
    }
    if config.geo.files.is_empty() {
        findings
            .note("No database is named, and every place and network in answers is null: name some in [geo] files.");
        all.push("none".to_owned());
    }
    findings.else_well(sentence(&all.join(", ")))
}

/// What a database is called, and how many days it is old.
fn age(file: &Path, now_s: u64) -> Result<(String, u64), geo::GeoError> {
    let atlas = Atlas::open(&Sources { files: vec![file.into()], ..Sources::default() })?;
    let edition = atlas.editions().first();
    Ok(edition.map_or_else(Default::default, |edition| (edition.database_type.clone(), edition.age_days(now_s))))
}

pub(super) fn proxies(config: &Config) -> Vec<Finding> {
    let settings = &config.edge;
    match proxies::trust(settings) {
        Ok(_) if settings.trusted_proxies.is_empty() => {
            Findings::new("proxies").else_well("Nobody's word is believed: every peer is itself the client.")
        }
        Ok(_) => Findings::new("proxies").else_well(format!(
            "{} networks are believed, in {} alone.",
            settings.trusted_proxies.len(),
            settings.forwarding_header
        )),
        Err(error) => wrong("proxies", told(&error)),
    }
}

/// What the world should not reach, and what it cannot use.
pub(super) fn exposure(config: &Config) -> Vec<Finding> {
    let mut findings = Findings::new("exposure");
    let listen = config.ops.listen;
    if is_public(listen.ip()) {
        findings.wrong(format!(
            "The private listener is on the public address {listen}: set [ops] listen to one of this machine or of your own network."
        ));
    } else if !listen.ip().is_loopback() {
        findings.note(format!("The private listener is on {listen}: let only your own network reach it."));
    }
    let base = &config.public.base_url;
    let is_local = ["://127.", "://localhost", "://[::1]"].iter().any(|host| base.contains(host));
    if config.portal.enabled && !base.starts_with("https://") && !is_local {
        findings.wrong(format!(
            "The portal is served at {base}, and browsers keep its cookies only over TLS: let [public] base_url begin with https://, or set [portal] enabled = false."
        ));
    }
    findings.else_well(format!("The private listener is on {listen}."))
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
    fn an_address_that_the_internet_leads_to_is_told_from_others() {
        for public in ["203.0.113.9", "8.8.8.8", "2001:db8::1"] {
            assert!(is_public(public.parse().expect("an address")), "{public}");
        }
        for own in
            ["127.0.0.1", "0.0.0.0", "10.1.2.3", "192.168.1.1", "100.64.0.1", "169.254.1.1", "::1", "::", "fd00::1"]
        {
            assert!(!is_public(own.parse().expect("an address")), "{own}");
        }
    }
}
