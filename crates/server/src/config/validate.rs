//! Settings that can be read, but cannot work.

use std::net::SocketAddr;

use anyhow::{Result, bail, ensure};
use ipseity_domain::DAILY_LIMIT_MAX;
use serde_json::Value;

use crate::config::{Config, settings_of};
use crate::node::console::{console_address, console_settings};

/// A node must renew its claim on Redis several times before it expires.
const OUTBOX_POLL_INTERVAL_MS_MAX: u64 = 4_000;
const CLOCK_FALL_MAX_MS: u64 = 30_000;
const BANNER_CHARS_MAX: usize = 500;
const HEARTBEAT_INTERVAL_S_MAX: u64 = 30;
/// Where a contact can lead.
const CONTACT_SCHEMES: [&str; 3] = ["mailto:", "https://", "http://"];
/// Settings without which nothing works if they are 0. Other limits of 0 turn something off.
const POSITIVE_SUFFIXES: [&str; 11] = [
    "timeout_ms",
    "interval_ms",
    "interval_s",
    "_period_s",
    "connections_max",
    "key_fills_max",
    "unknown_lookups_max",
    "breaker_failures_max",
    "headers_max",
    "concurrent_streams_max",
    "password_threads",
];
/// Sizes of `[edge]` below which usual requests or the largest responses fail. `default.toml` states them.
const EDGE_BYTES_MIN: [(&str, u64); 7] = [
    ("proxy_header_bytes_max", 256),
    ("memory_per_connection_bytes_max", 262_144),
    ("memory_per_subnet_bytes_max", 1_048_576),
    ("memory_bytes_max", 4_194_304),
    ("header_bytes_max", 1_024),
    ("uri_bytes_max", 256),
    ("unsolicited_bytes_max", 32_768),
];

impl Config {
    pub(super) fn validate(&self) -> Result<()> {
        let sections = serde_json::to_value(self)?;
        ensure_positive(&sections)?;
        ensure_edge_sizes(&sections)?;
        self.validate_urls()?;
        self.validate_listeners()?;
        ensure!(
            self.retention.usage_days >= 31,
            "[retention] usage_days must be at least 31, because the portal shows 31 days"
        );
        ensure!(
            self.retention.hourly_usage_days >= 30,
            "[retention] hourly_usage_days must be at least 30, because the portal shows the hours of 30 days"
        );
        ensure!(
            self.ledger.outbox_poll_interval_ms <= OUTBOX_POLL_INTERVAL_MS_MAX,
            "[ledger] outbox_poll_interval_ms must be at most {OUTBOX_POLL_INTERVAL_MS_MAX}, because the claim of a node \
             on its Redis lasts 10 s"
        );
        ensure!(
            (1..=DAILY_LIMIT_MAX).contains(&self.ledger.demo_daily_limit),
            "[ledger] demo_daily_limit must be from 1 to {DAILY_LIMIT_MAX}"
        );
        ensure!(
            self.ledger.clock_fall_max_ms <= CLOCK_FALL_MAX_MS,
            "[ledger] clock_fall_max_ms must be at most {CLOCK_FALL_MAX_MS}, half of the burst window"
        );
        ensure!(
            self.portal.banner.chars().count() <= BANNER_CHARS_MAX,
            "[portal] banner must have at most {BANNER_CHARS_MAX} characters"
        );
        console_settings(self)?;
        ensure!(
            self.ops.heartbeat_interval_s <= HEARTBEAT_INTERVAL_S_MAX,
            "[ops] heartbeat_interval_s must be at most {HEARTBEAT_INTERVAL_S_MAX}, because a node without a heartbeat for 90 s \
             counts as missing"
        );
        let ratio = self.otlp.trace_sample_ratio;
        ensure!((0.0..=1.0).contains(&ratio), "[otlp] trace_sample_ratio is {ratio}. Use a number from 0 to 1.");
        self.home.check()
    }

    fn validate_listeners(&self) -> Result<()> {
        let (edge, acme) = (&self.edge, &self.acme);
        if edge.https.is_empty() {
            let reason = "is set, but [edge] https is empty. Add an address to https.";
            ensure!(acme.domains.is_empty(), "[acme] domains {reason}");
            ensure!(edge.certificates.is_empty(), "[[edge.certificates]] {reason}");
        }
        ensure!(
            acme.domains.is_empty() || acme.challenge != "http-01" || !edge.http.is_empty(),
            "[acme] challenge is \"http-01\", but [edge] http is empty. Add an address to http, or use \"tls-alpn-01\"."
        );
        let mut listeners = Vec::new();
        listeners.extend(edge.http.iter().map(|address| ("[edge] http", *address)));
        listeners.extend(edge.https.iter().map(|address| ("[edge] https", *address)));
        listeners.push(("[ops] listen", self.ops.listen));
        listeners.extend(self.home.listen_address()?.map(|address| ("[home] listen", address)));
        listeners.extend(console_address(self)?.map(|address| ("[admin] listen", address)));
        for (index, first) in listeners.iter().enumerate() {
            for second in &listeners[index + 1..] {
                ensure_no_conflict(*first, *second, edge.reuse_port)?;
            }
        }
        Ok(())
    }

    fn validate_urls(&self) -> Result<()> {
        let contact = &self.public.contact;
        ensure!(
            contact.is_empty() || CONTACT_SCHEMES.iter().any(|scheme| contact.starts_with(scheme)),
            "failed to parse [public] contact. Use a URL such as mailto:support@example.com or https://example.com/contact"
        );
        // The PostgreSQL library accepts any scheme.
        let is_postgres = ["postgres://", "postgresql://"].iter().any(|scheme| self.store.url.starts_with(scheme));
        ensure!(is_postgres, "invalid [store] url: it must start with postgres://");
        for source in &self.geo.sources {
            let urls = [&source.url, &source.sha256_url];
            let uses_https = urls.iter().all(|url| url.is_empty() || url.starts_with("https://"));
            ensure!(
                uses_https && !source.url.is_empty(),
                "[[geo.sources]] url and sha256_url must start with https://"
            );
        }
        Ok(())
    }
}

/// The kernel would report that the second address is in use.
fn ensure_no_conflict(first: (&str, SocketAddr), second: (&str, SocketAddr), reuse_port: bool) -> Result<()> {
    let ((name, address), (other_name, other)) = (first, second);
    // The kernel chooses a free port for 0.
    if address.port() != other.port() || address.port() == 0 {
        return Ok(());
    }
    if address == other {
        bail!("{address} is in {name} and again in {other_name}. Use another address for one of them.");
    }
    let includes_other = address.is_ipv4() == other.is_ipv4()
        && (address.ip().is_unspecified() || other.ip().is_unspecified())
        && !reuse_port;
    ensure!(
        !includes_other,
        "{address} in {name} and {other} in {other_name} overlap, because {} is every address of this machine. Use another \
         port for one of them.",
        if address.ip().is_unspecified() { address.ip() } else { other.ip() }
    );
    Ok(())
}

fn ensure_edge_sizes(sections: &Value) -> Result<()> {
    for (name, bytes_min) in EDGE_BYTES_MIN {
        let is_enough = sections["edge"][name].as_u64().is_some_and(|bytes| bytes >= bytes_min);
        ensure!(is_enough, "[edge] {name} must be at least {bytes_min}");
    }
    Ok(())
}

fn ensure_positive(sections: &Value) -> Result<()> {
    for (section, name, value) in settings_of(sections) {
        let must_be_positive = POSITIVE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
        ensure!(!must_be_positive || value != 0, "[{section}] {name} must be at least 1");
    }
    Ok(())
}
