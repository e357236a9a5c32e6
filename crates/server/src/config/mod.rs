//! Configuration: `default.toml`, then a file, then the environment. Read here and nowhere below.

pub(crate) mod proxy_preset;
pub(crate) mod public_urls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use config::{Environment, File, FileFormat};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::config::proxy_preset::ProxyPreset;

const DEFAULT_TOML: &str = include_str!("default.toml");
/// Settings that the environment gives as a list with commas.
const LIST_SETTINGS: [&str; 9] = [
    "edge.http",
    "edge.https",
    "edge.trusted_proxies",
    "edge.proxy_protocol",
    "acme.names",
    "acme.contact",
    "geo.files",
    "geo.hosting_lists",
    "geo.proxy_lists",
];

/// All settings; what each means stands in `default.toml`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) public: PublicConfig,
    pub(crate) edge: EdgeConfig,
    pub(crate) acme: AcmeConfig,
    pub(crate) store: StoreConfig,
    pub(crate) ledger: LedgerConfig,
    pub(crate) geo: GeoConfig,
    pub(crate) portal: PortalConfig,
    pub(crate) mail: MailConfig,
    pub(crate) retention: RetentionConfig,
    pub(crate) ops: OpsConfig,
    pub(crate) log: LogConfig,
    pub(crate) otlp: OtlpConfig,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PublicConfig {
    pub(crate) base_url: String,
    pub(crate) docs_url: String,
    pub(crate) signup_url: String,
    pub(crate) enterprise_url: String,
    pub(crate) security_contact: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EdgeConfig {
    pub(crate) http: Vec<SocketAddr>,
    pub(crate) https: Vec<SocketAddr>,
    pub(crate) reuse_port: bool,
    pub(crate) certificate_file: PathBuf,
    pub(crate) private_key_file: PathBuf,
    pub(crate) certificates: Vec<CertificateConfig>,
    pub(crate) certificate_watch_interval_ms: u64,
    pub(crate) http3: bool,
    pub(crate) http3_advertised_port: u16,
    pub(crate) colo: String,
    pub(crate) preset: ProxyPreset,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) forwarding_header: String,
    pub(crate) proxy_protocol: Vec<SocketAddr>,
    pub(crate) pass_through: String,
    pub(crate) tls_version_header: String,
    pub(crate) tls_cipher_header: String,
    pub(crate) http_protocol_header: String,
    pub(crate) rtt_header: String,
    pub(crate) colo_header: String,
    pub(crate) connections_max: usize,
    pub(crate) connections_per_subnet_max: usize,
    pub(crate) open_files_reserved: usize,
    pub(crate) accept_backoff_ms: u64,
    pub(crate) first_byte_timeout_ms: u64,
    pub(crate) proxy_header_bytes_max: usize,
    pub(crate) handshake_timeout_ms: u64,
    pub(crate) header_timeout_ms: u64,
    pub(crate) idle_timeout_ms: u64,
    pub(crate) write_timeout_ms: u64,
    pub(crate) request_timeout_ms: u64,
    pub(crate) drain_delay_ms: u64,
    pub(crate) drain_timeout_ms: u64,
    pub(crate) header_bytes_max: usize,
    pub(crate) uri_bytes_max: usize,
    pub(crate) headers_max: usize,
    pub(crate) concurrent_streams_max: u32,
    pub(crate) stream_resets_max: usize,
    pub(crate) unsolicited_bytes_max: usize,
    pub(crate) flood_penalty_ms: u64,
    pub(crate) quic_retry_threshold: usize,
}

/// A certificate beside the first.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CertificateConfig {
    pub(crate) certificate_file: PathBuf,
    pub(crate) private_key_file: PathBuf,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcmeConfig {
    pub(crate) domains: Vec<String>,
    pub(crate) directory_url: String,
    pub(crate) contact: Vec<String>,
    pub(crate) accept_terms: bool,
    pub(crate) challenge: String,
    pub(crate) dir: PathBuf,
    pub(crate) ca_file: PathBuf,
    pub(crate) check_interval_s: u64,
    pub(crate) renew_before_h: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreConfig {
    pub(crate) url: String,
    pub(crate) url_file: PathBuf,
    pub(crate) connections_max: u32,
    pub(crate) timeout_ms: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LedgerConfig {
    pub(crate) url: String,
    pub(crate) url_file: PathBuf,
    pub(crate) timeout_ms: u64,
    pub(crate) key_fills_max: usize,
    pub(crate) unknown_cache_keys_max: usize,
    pub(crate) refusal_cache_keys_max: usize,
    pub(crate) breaker_failures_max: u32,
    pub(crate) probe_interval_ms: u64,
    pub(crate) degraded_max_age_s: u64,
    pub(crate) local_cache_keys_max: usize,
    pub(crate) usage_flush_interval_ms: u64,
    pub(crate) usage_buffer_keys_max: usize,
    pub(crate) outbox_poll_interval_ms: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GeoConfig {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) hosting_asn_lists: Vec<PathBuf>,
    pub(crate) proxy_asn_lists: Vec<PathBuf>,
    pub(crate) watch: bool,
    pub(crate) watch_interval_ms: u64,
    pub(crate) allow_older: bool,
    pub(crate) render_cache_entries_max: usize,
    pub(crate) sources: Vec<GeoSourceConfig>,
    pub(crate) update_interval_h: u64,
    pub(crate) update_bytes_max: u64,
    pub(crate) update_timeout_ms: u64,
    pub(crate) update_idle_timeout_ms: u64,
    pub(crate) ca_file: PathBuf,
}

/// Where a geo file is fetched from.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GeoSourceConfig {
    pub(crate) url: String,
    pub(crate) file: PathBuf,
    #[serde(default)]
    pub(crate) sha256_url: String,
    #[serde(default)]
    pub(crate) account_id: String,
    #[serde(default)]
    pub(crate) license_key_file: PathBuf,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortalConfig {
    pub(crate) enabled: bool,
    pub(crate) signup: SignupMode,
    pub(crate) session_idle_days: u32,
    pub(crate) password_threads: usize,
    pub(crate) password_queue_max: usize,
    pub(crate) login_attempts_per_subnet_max: u32,
    pub(crate) login_attempts_per_account_max: u32,
    pub(crate) login_attempts_entries_max: usize,
    pub(crate) event_streams_max: usize,
    pub(crate) form_bytes_max: usize,
    pub(crate) postgres_connections_max: u32,
    pub(crate) query_timeout_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SignupMode {
    Open,
    Closed,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MailConfig {
    pub(crate) smtp_url: String,
    pub(crate) smtp_url_file: PathBuf,
    pub(crate) from: String,
    pub(crate) timeout_ms: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetentionConfig {
    pub(crate) usage_days: u16,
    pub(crate) history_days: u16,
    pub(crate) interval_s: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpsConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) connections_max: usize,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogConfig {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
    pub(crate) access: bool,
    pub(crate) override_max_s: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OtlpConfig {
    pub(crate) endpoint: String,
    pub(crate) trace_sample_ratio: f64,
    pub(crate) queue_entries_max: usize,
    pub(crate) timeout_ms: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Json,
    Text,
}

impl Config {
    /// Reads the default, the file if one is named, and the environment.
    pub(crate) fn load(file: Option<&Path>) -> Result<Self> {
        let mut builder = config::Config::builder().add_source(File::from_str(DEFAULT_TOML, FileFormat::Toml));
        if let Some(file) = file {
            builder = builder.add_source(File::from(file).format(FileFormat::Toml));
        }
        let mut environment = Environment::with_prefix("IPSEITY")
            .prefix_separator("__")
            .separator("__")
            .try_parsing(true)
            .ignore_empty(true)
            .list_separator(",");
        for list in LIST_SETTINGS {
            environment = environment.with_list_parse_key(list);
        }
        let settings = builder.add_source(environment).build().context("the configuration cannot be read")?;
        let mut config: Self = settings
            .try_deserialize()
            .context("the configuration is not valid; `default.toml` in the documentation names every setting")?;
        config.edge.preset.fill_empty_settings(&mut config.edge);
        read_secret(&mut config.store.url, &config.store.url_file)?;
        read_secret(&mut config.ledger.url, &config.ledger.url_file)?;
        read_secret(&mut config.mail.smtp_url, &config.mail.smtp_url_file)?;
        ensure!(
            config.retention.usage_days >= 31,
            "[retention] usage_days is less than 31; the portal shows that many"
        );
        // The library takes any scheme for PostgreSQL's.
        let is_postgres = ["postgres://", "postgresql://"].iter().any(|scheme| config.store.url.starts_with(scheme));
        ensure!(is_postgres, "[store] url cannot be read; it begins with postgres://");
        for source in &config.geo.sources {
            let urls = [&source.url, &source.sha256_url];
            let uses_https = urls.iter().all(|url| url.is_empty() || url.starts_with("https://"));
            ensure!(uses_https && !source.url.is_empty(), "[[geo.sources]] url and sha256_url begin with https://");
        }
        Ok(config)
    }

    /// Every setting on a line of its own; passwords within addresses are left out.
    pub(crate) fn redacted_lines(&self) -> Result<Vec<String>> {
        let mut redacted = self.clone();
        redacted.ledger.url = redact_urls(&redacted.ledger.url);
        let urls = [&mut redacted.store.url, &mut redacted.mail.smtp_url];
        for url in urls.into_iter().filter(|url| !url.is_empty()) {
            *url = redact_url(url);
        }
        for source in &mut redacted.geo.sources {
            for url in [&mut source.url, &mut source.sha256_url].into_iter().filter(|url| !url.is_empty()) {
                *url = redact_url(url);
            }
        }
        let sections = serde_json::to_value(redacted)?;
        let mut lines = Vec::new();
        for (section, settings) in sections.as_object().into_iter().flatten() {
            for (name, value) in settings.as_object().into_iter().flatten() {
                lines.push(format!("{section}.{name} = {value}"));
            }
        }
        Ok(lines)
    }
}

/// Milliseconds of a setting as a duration.
pub(crate) const fn millis(value_ms: u64) -> Duration {
    Duration::from_millis(value_ms)
}

fn read_secret(value: &mut String, file: &Path) -> Result<()> {
    if !file.as_os_str().is_empty() {
        let text = std::fs::read_to_string(file).with_context(|| {
            format!("{} cannot be read; it is named by a setting that ends in `_file`", file.display())
        })?;
        text.trim().clone_into(value);
    }
    Ok(())
}

/// Addresses with commas between, without their passwords.
pub(crate) fn redact_urls(urls: &str) -> String {
    let urls: Vec<_> = urls.split(',').map(str::trim).collect();
    if urls.iter().any(|url| !url.contains("://")) {
        // A comma that was not escaped in a password, perhaps.
        return "…".to_owned();
    }
    urls.into_iter().map(redact_url).collect::<Vec<_>>().join(",")
}

/// `postgres://user:password@host/…?password=…` without the passwords. What cannot be taken apart is not shown at all.
pub(crate) fn redact_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "…".to_owned() };
    let (authority_and_path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if query.contains('@') {
        // A question mark that was not escaped in the password, perhaps.
        return format!("{scheme}://…");
    }
    let authority_and_path = match authority_and_path.rsplit_once('@') {
        Some((credentials, host)) => format!("{}:…@{host}", credentials.split(':').next().unwrap_or_default()),
        None => authority_and_path.to_owned(),
    };
    let redact_param = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if is_secret_param(name) => format!("{name}=…"),
        Some(_) | None => pair.to_owned(),
    };
    let query: Vec<_> = query.split('&').filter(|pair| !pair.is_empty()).map(redact_param).collect();
    let separator = if query.is_empty() { "" } else { "?" };
    format!("{scheme}://{authority_and_path}{separator}{}", query.join("&"))
}

/// Whether a parameter's name says that its value is nobody's business.
fn is_secret_param(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["pass", "key", "token", "secret", "sig"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_toml_is_complete_and_has_no_unknown_setting() {
        let settings = config::Config::builder().add_source(File::from_str(DEFAULT_TOML, FileFormat::Toml)).build();
        let config: Config = settings.and_then(config::Config::try_deserialize).expect("the default is valid");
        assert_eq!(config.ledger.timeout_ms, 50);
    }

    #[test]
    fn every_default_setting_has_a_comment() {
        let mut commented = false;
        for line in DEFAULT_TOML.lines() {
            if line.starts_with('#') {
                commented = true;
            } else if line.is_empty() || line.starts_with('[') {
                commented = false;
            } else {
                assert!(commented, "nothing explains: {line}");
            }
        }
    }

    #[test]
    fn redacted_urls_contain_no_password() {
        assert_eq!(redact_url("redis://u:se:c@ret@h:1/0"), "redis://u:…@h:1/0");
        assert_eq!(redact_url("redis://h:1"), "redis://h:1");
        assert_eq!(redact_url("postgres://h/d?user=u&password=secret"), "postgres://h/d?user=u&password=…");
        assert_eq!(redact_url("https://h/d?edition_id=e&license_key=secret"), "https://h/d?edition_id=e&license_key=…");
        assert_eq!(redact_url("u:secret@h"), "…");
        assert_eq!(redact_url("postgres://u:se?cret@h/d"), "postgres://…");
        assert_eq!(redact_urls("redis://u:secret@h:1, redis://:secret@i:2"), "redis://u:…@h:1,redis://:…@i:2");
        assert_eq!(redact_urls("redis://u:se,cret@h:1"), "…");
    }
}
