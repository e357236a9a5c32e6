//! Checks the host names for one address family: their addresses and certificates.

use std::net::IpAddr;

use anyhow::Result;
use ipseity_domain::{Address, AddressFamily};
use tokio::net::lookup_host;
use url::Url;

use crate::cli::doctor::finding::{DoctorFinding, DoctorFindings, error_sentence, single_error};
use crate::config::Config;
use crate::node::sealed_tokens::open_sealed_tokens;
use crate::tasks::certificates::open_cert_resolver;

pub(super) async fn check_pairing(config: &Config) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new("pairing");
    match open_sealed_tokens(&config.public) {
        Ok(tokens) if tokens.pairing.is_some() => {}
        Ok(_) => return findings.ok_unless_error("Not used: [public] ipv4_url and ipv6_url are empty."),
        Err(error) => return single_error("pairing", error_sentence(&error)),
    }
    for (setting, url, family) in [
        ("ipv4_url", &config.public.ipv4_url, AddressFamily::Ipv4),
        ("ipv6_url", &config.public.ipv6_url, AddressFamily::Ipv6),
    ] {
        // Both were parsed above.
        let Ok(url) = Url::parse(url) else { continue };
        let host = url.host_str().unwrap_or_default();
        let problem = match resolve(host).await {
            Ok(addresses) => address_problem(host, setting, family, &addresses),
            Err(error) => {
                Some(format!("{host} does not resolve: {error}. Add its records, or correct [public] {setting}."))
            }
        };
        match (problem, url.domain()) {
            (Some(problem), _) => findings.error(problem),
            (None, Some(domain)) => check_certificate(&mut findings, config, domain),
            (None, None) => {}
        }
    }
    let keys = if config.public.sealing_key_file.as_os_str().is_empty() {
        "Without [public] sealing_key_file, a token works only on the node that issued it."
    } else {
        "[public] sealing_key_file is valid."
    };
    findings.ok_unless_error(format!("Each host name has addresses of one family. {keys}"))
}

async fn resolve(host: &str) -> Result<Vec<IpAddr>> {
    // Only the addresses matter, not the port.
    let addresses = lookup_host((host.trim_matches(['[', ']']), 443)).await?;
    Ok(addresses.map(|address| address.ip()).collect())
}

fn address_problem(host: &str, setting: &str, family: AddressFamily, addresses: &[IpAddr]) -> Option<String> {
    let (record, other_record) = match family {
        AddressFamily::Ipv4 => ("A", "AAAA"),
        AddressFamily::Ipv6 => ("AAAA", "A"),
    };
    let is_wrong = |address: &IpAddr| Address::new(*address).family() != Some(family);
    if addresses.iter().all(is_wrong) {
        Some(format!("{host} has no {record} record. Add one, or correct [public] {setting}."))
    } else if addresses.iter().any(is_wrong) {
        Some(format!(
            "{host} has {other_record} records too, so clients reach it over both families. Remove them, or correct [public] {setting}."
        ))
    } else {
        None
    }
}

fn check_certificate(findings: &mut DoctorFindings, config: &Config, domain: &str) {
    // Without TLS listeners, a proxy has the certificate. Another check reports certificates that cannot be read.
    let Some(cert_resolver) = open_cert_resolver(config).ok().filter(|_| !config.edge.https.is_empty()) else { return };
    let is_ordered = config.acme.domains.iter().any(|ordered| ordered == domain);
    match cert_resolver.names_with(domain) {
        None if is_ordered => {}
        None => findings.error(format!(
            "No certificate covers {domain}. Add one to [[edge.certificates]], or add the name to [acme] domains."
        )),
        Some(names) if names != [domain] => findings.warning(format!(
            "The certificate of {domain} covers {}, so browsers may use a connection of the wrong family. Use a separate certificate for each name.",
            names.join(", ")
        )),
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_of_one_family_has_no_address_of_the_other() {
        let problem = |family, addresses: &[&str]| {
            let addresses: Vec<_> = addresses.iter().map(|text| text.parse().expect("valid address")).collect();
            address_problem("h.example", "ipv4_url", family, &addresses)
        };
        let (v4, v6, mapped) = ("198.51.100.7", "2001:db8::7", "::ffff:198.51.100.7");
        assert_eq!(problem(AddressFamily::Ipv4, &[v4, mapped]), None);
        assert_eq!(problem(AddressFamily::Ipv6, &[v6]), None);
        for (family, addresses, expected) in [
            (AddressFamily::Ipv4, &[v4, v6][..], "has AAAA records too"),
            (AddressFamily::Ipv6, &[v4, v6], "has A records too"),
            (AddressFamily::Ipv4, &[v6], "has no A record"),
            (AddressFamily::Ipv6, &[v4], "has no AAAA record"),
            (AddressFamily::Ipv4, &[], "has no A record"),
        ] {
            assert!(problem(family, addresses).is_some_and(|text| text.contains(expected)), "{expected}");
        }
    }
}
