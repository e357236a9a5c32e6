//! Settings that can be read, but cannot work.

use anyhow::{Result, ensure};
use ipseity_domain::DAILY_LIMIT_MAX;
use serde_json::Value;

use crate::config::{Config, settings_of};

/// A node must renew its claim on Redis several times before it expires.
const OUTBOX_POLL_INTERVAL_MS_MAX: u64 = 4_000;
const CLOCK_FALL_MAX_MS: u64 = 30_000;
const BANNER_CHARS_MAX: usize = 500;
/// Where a contact can lead.
const CONTACT_SCHEMES: [&str; 3] = ["mailto:", "https://", "http://"];
/// Settings without which nothing works if they are 0. Other limits of 0 turn something off.
const POSITIVE_SUFFIXES: [&str; 13] = [
    "timeout_ms",
    "interval_ms",
    "interval_s",
    "_period_s",
    "connections_max",
    "key_fills_max",
    "unknown_lookups_max",
    "breaker_failures_max",
    "header_bytes_max",
    "uri_bytes_max",
    "headers_max",
    "concurrent_streams_max",
    "password_threads",
];

impl Config {
    pub(super) fn validate(&self) -> Result<()> {
        ensure_positive(&serde_json::to_value(self)?)?;
        self.validate_urls()?;
        ensure!(
            self.retention.usage_days >= 31,
            "[retention] usage_days must be at least 31, because the portal shows 31 days"
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
        self.home.check()
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

fn ensure_positive(sections: &Value) -> Result<()> {
    for (section, name, value) in settings_of(sections) {
        let must_be_positive = POSITIVE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
        ensure!(!must_be_positive || value != 0, "[{section}] {name} must be at least 1");
    }
    Ok(())
}
