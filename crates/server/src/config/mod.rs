//! Configuration: `default.toml`, overridden by a file and then by environment variables.

mod admin;
mod choice;
mod defaults;
pub(crate) mod edge;
mod environment;
mod listen_address;
mod manage;
pub(crate) mod public_urls;
pub(crate) mod secrets;
mod unknown_settings;
mod validate;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use config::{File, FileFormat};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::config::admin::AdminConfig;
use crate::config::choice::parse_choice;
use crate::config::defaults::DEFAULT_TOML;
use crate::config::edge::EdgeConfig;
use crate::config::environment::EnvironmentSettings;
use crate::config::manage::ManageConfig;
use crate::config::secrets::{read_secret, redact_setting};
use crate::config::unknown_settings::reject_unknown_in_file;

/// All settings; `default.toml` documents them.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) public: PublicConfig,
    pub(crate) edge: EdgeConfig,
    pub(crate) acme: AcmeConfig,
    pub(crate) store: StoreConfig,
    pub(crate) ledger: LedgerConfig,
    pub(crate) home: HomeConfig,
    pub(crate) geo: GeoConfig,
    pub(crate) portal: PortalConfig,
    pub(crate) mail: MailConfig,
    pub(crate) alerts: AlertsConfig,
    pub(crate) manage: ManageConfig,
    pub(crate) retention: RetentionConfig,
    pub(crate) ops: OpsConfig,
    pub(crate) admin: AdminConfig,
    pub(crate) log: LogConfig,
    pub(crate) otlp: OtlpConfig,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PublicConfig {
    pub(crate) base_url: String,
    pub(crate) allow_plain_http: bool,
    pub(crate) test_keys: bool,
    pub(crate) docs_url: String,
    pub(crate) signup_url: String,
    pub(crate) enterprise_url: String,
    pub(crate) contact: String,
    pub(crate) security_contact: String,
    pub(crate) ipv4_url: String,
    pub(crate) ipv6_url: String,
    pub(crate) sealing_key_file: PathBuf,
    pub(crate) pair_token_lifetime_s: u64,
    pub(crate) pair_tokens_per_subnet_per_min_max: u32,
    pub(crate) pair_networks_max: usize,
    pub(crate) tickets_per_key_per_min_max: u32,
    pub(crate) ticket_body_timeout_ms: u64,
    pub(crate) ticket_counters_max: usize,
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
    pub(crate) ca_file: PathBuf,
    pub(crate) certificate_file: PathBuf,
    pub(crate) private_key_file: PathBuf,
    pub(crate) timeout_ms: u64,
    pub(crate) key_fills_max: usize,
    pub(crate) unknown_lookups_max: usize,
    pub(crate) unknown_cache_keys_max: usize,
    pub(crate) unknown_cache_ttl_s: u64,
    pub(crate) refusal_cache_keys_max: usize,
    pub(crate) demo_daily_limit: u64,
    pub(crate) demo_requests_per_subnet_max: u64,
    pub(crate) caller_counters_max: usize,
    pub(crate) key_status_requests_per_key_per_min_max: u32,
    pub(crate) key_status_requests_per_subnet_per_min_max: u32,
    pub(crate) key_status_entries_max: usize,
    pub(crate) breaker_failures_max: u32,
    pub(crate) probe_interval_ms: u64,
    pub(crate) clock_fall_max_ms: u64,
    pub(crate) degraded_max_age_s: u64,
    pub(crate) local_cache_keys_max: usize,
    pub(crate) usage_flush_interval_ms: u64,
    pub(crate) usage_buffer_keys_max: usize,
    pub(crate) outbox_poll_interval_ms: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HomeConfig {
    pub(crate) listen: String,
    pub(crate) certificate_file: PathBuf,
    pub(crate) private_key_file: PathBuf,
    pub(crate) ca_file: PathBuf,
    pub(crate) advertised_urls: Vec<String>,
    pub(crate) connections_max: usize,
    pub(crate) requests_per_connection_max: usize,
    pub(crate) sites_poll_interval_ms: u64,
    pub(crate) urls: Vec<String>,
    pub(crate) portal_url: String,
    pub(crate) timeout_ms: u64,
    pub(crate) ping_interval_ms: u64,
    pub(crate) silence_timeout_ms: u64,
    pub(crate) unknown_requests_max: usize,
    pub(crate) optimistic: bool,
}

impl HomeConfig {
    /// Whether this node asks home instead of PostgreSQL and Redis.
    pub(crate) const fn is_remote_node(&self) -> bool {
        !self.urls.is_empty()
    }

    /// The address for remote nodes; `None` if this node accepts none.
    pub(crate) fn listen_address(&self) -> Result<Option<SocketAddr>> {
        let parsed = Some(&*self.listen).filter(|listen| !listen.is_empty()).map(str::parse).transpose();
        parsed.context("[home] listen must be an address with a port, such as 10.0.0.1:9443")
    }

    fn check(&self) -> Result<()> {
        self.listen_address()?;
        ensure!(
            self.listen.is_empty() || !self.is_remote_node(),
            "[home] listen and urls are both set. Set listen on a home node, or urls on a remote node."
        );
        if self.is_remote_node() {
            let urls = self.urls.iter().chain([&self.portal_url]);
            for url in urls {
                let is_https = url::Url::parse(url).is_ok_and(|url| url.scheme() == "https" && url.has_host());
                ensure!(is_https, "[home] urls and portal_url must be URLs that start with https://");
            }
        }
        ensure!(
            !self.optimistic || (20..=250).contains(&self.ping_interval_ms),
            "[home] ping_interval_ms must be between 20 and 250 with optimistic"
        );
        if self.is_remote_node() || !self.listen.is_empty() {
            let has_certificate =
                [&self.certificate_file, &self.private_key_file].iter().all(|file| !file.as_os_str().is_empty());
            ensure!(has_certificate, "[home] certificate_file and private_key_file must be set");
        }
        ensure!(
            !self.is_remote_node() || !self.ca_file.as_os_str().is_empty(),
            "[home] ca_file must be set. `ipseity site add` writes it."
        );
        Ok(())
    }
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

impl GeoConfig {
    /// The source of a file.
    pub(crate) fn source_of(&self, file: &Path) -> Option<&GeoSourceConfig> {
        self.sources.iter().find(|source| source.file == file)
    }

    /// The sources of files in `files` that do not exist yet.
    pub(crate) fn sources_of_missing_files(&self) -> impl Iterator<Item = &GeoSourceConfig> {
        self.sources.iter().filter(|source| self.files.contains(&source.file) && !source.file.exists())
    }
}

/// A download source of a geo database.
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

impl GeoSourceConfig {
    /// The host of the URL, which contains no secret.
    pub(crate) fn host(&self) -> String {
        let url = url::Url::parse(&self.url).ok();
        url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default()
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortalConfig {
    pub(crate) enabled: bool,
    pub(crate) banner: String,
    pub(crate) terms_file: PathBuf,
    pub(crate) privacy_file: PathBuf,
    pub(crate) signup: SignupMode,
    pub(crate) session_idle_days: u32,
    pub(crate) session_days_max: u32,
    pub(crate) recent_sign_in_s: u64,
    pub(crate) oidc_name: String,
    pub(crate) oidc_issuer: String,
    pub(crate) oidc_client_id: String,
    pub(crate) oidc_client_secret_file: PathBuf,
    pub(crate) github_client_id: String,
    pub(crate) github_client_secret_file: PathBuf,
    pub(crate) github_keys_url: String,
    pub(crate) require_two_factor: bool,
    pub(crate) second_factor_attempts_per_account_max: u32,
    pub(crate) password_threads: usize,
    pub(crate) owner_password_threads: usize,
    pub(crate) password_queue_max: usize,
    pub(crate) login_attempts_period_s: u64,
    pub(crate) login_attempts_per_subnet_max: u32,
    pub(crate) login_attempts_per_account_max: u32,
    pub(crate) login_attempts_entries_max: usize,
    pub(crate) unknown_lookups_per_subnet_max: u32,
    pub(crate) account_changes_per_account_max: u32,
    pub(crate) key_actions_per_account_max: u32,
    pub(crate) self_lookups_per_subnet_per_min_max: u32,
    pub(crate) event_streams_max: usize,
    pub(crate) event_streams_per_account_max: usize,
    pub(crate) form_bytes_max: usize,
    pub(crate) postgres_connections_max: u32,
    pub(crate) query_timeout_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub(crate) enum SignupMode {
    Open,
    Closed,
}

impl TryFrom<String> for SignupMode {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        parse_choice(&name, [("open", Self::Open), ("closed", Self::Closed)])
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MailConfig {
    pub(crate) smtp_url: String,
    pub(crate) smtp_url_file: PathBuf,
    pub(crate) from: String,
    pub(crate) timeout_ms: u64,
    pub(crate) emails_per_address_per_hour_max: u32,
    pub(crate) emails_per_subnet_per_10_min_max: u32,
    pub(crate) emails_per_node_per_hour_max: u32,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AlertsConfig {
    pub(crate) allowed_networks: Vec<IpNet>,
    pub(crate) channels_per_account_max: u32,
    pub(crate) requests_max: usize,
    pub(crate) requests_per_channel_max: usize,
    pub(crate) requests_per_account_max: usize,
    pub(crate) timeout_ms: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetentionConfig {
    pub(crate) usage_days: u16,
    pub(crate) hourly_usage_days: u16,
    pub(crate) history_days: u16,
    pub(crate) interval_s: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpsConfig {
    #[serde(deserialize_with = "listen_address::deserialize_address")]
    pub(crate) listen: SocketAddr,
    pub(crate) hosts: Vec<String>,
    pub(crate) connections_max: usize,
    pub(crate) probe_interval_ms: u64,
    pub(crate) probe_timeout_ms: u64,
    pub(crate) heartbeat_interval_s: u64,
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
#[serde(rename_all = "lowercase", try_from = "String")]
pub(crate) enum LogFormat {
    Json,
    Text,
}

impl TryFrom<String> for LogFormat {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        parse_choice(&name, [("json", Self::Json), ("text", Self::Text)])
    }
}

impl Config {
    pub(crate) fn load(file: Option<&Path>) -> Result<Self> {
        let mut builder = config::Config::builder().add_source(File::from_str(DEFAULT_TOML, FileFormat::Toml));
        if let Some(file) = file {
            let error_context = || format!("failed to read the configuration file {}", file.display());
            let text = std::fs::read_to_string(file).with_context(error_context)?;
            reject_unknown_in_file(file, &text)?;
            builder = builder.add_source(File::from(file).format(FileFormat::Toml));
        }
        let settings =
            builder.add_source(EnvironmentSettings::read()?).build().context("failed to read the configuration")?;
        let mut config: Self = settings.try_deserialize().map_err(|error| {
            let is_list = error.to_string().contains("expected a sequence");
            let hint = if is_list { " A list needs brackets, such as [\"127.0.0.1:8080\"]." } else { "" };
            anyhow!(error).context(format!("invalid configuration. `default.toml` documents every setting.{hint}"))
        })?;
        config.edge.preset.fill_empty_settings(&mut config.edge);
        read_secret(&mut config.store.url, &config.store.url_file)?;
        read_secret(&mut config.ledger.url, &config.ledger.url_file)?;
        read_secret(&mut config.mail.smtp_url, &config.mail.smtp_url_file)?;
        config.normalize_urls()?;
        config.validate()?;
        Ok(config)
    }

    /// The names of the settings that differ, also if only a password does.
    pub(crate) fn changed_names(&self, other: &Self) -> Result<Vec<String>> {
        let (own, other) = (serde_json::to_value(self)?, serde_json::to_value(other)?);
        let changed = settings_of(&own).zip(settings_of(&other)).filter(|(own, other)| own != other);
        Ok(changed.map(|((section, name, _), _)| format!("{section}.{name}")).collect())
    }

    /// The path and the value of every setting, such as `edge.http`. Every URL is redacted, whatever its setting is called.
    pub(crate) fn redacted_settings(&self) -> Result<Vec<(String, serde_json::Value)>> {
        Ok(redacted_settings_of(&serde_json::to_value(self)?))
    }
}

/// The section, the name and the value of every setting.
fn settings_of(sections: &serde_json::Value) -> impl Iterator<Item = (&str, &str, &serde_json::Value)> {
    let sections = sections.as_object().into_iter().flatten();
    sections.flat_map(|(section, settings)| {
        let settings = settings.as_object().into_iter().flatten();
        settings.map(|(name, value)| (&**section, &**name, value))
    })
}

fn redacted_settings_of(sections: &serde_json::Value) -> Vec<(String, serde_json::Value)> {
    let settings = settings_of(sections);
    settings
        .map(|(section, name, value)| (format!("{section}.{name}"), redact_setting(section, name, value.clone())))
        .collect()
}

pub(crate) const fn millis(value_ms: u64) -> Duration {
    Duration::from_millis(value_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_toml_is_complete_and_has_no_unknown_setting() {
        let settings = config::Config::builder().add_source(File::from_str(DEFAULT_TOML, FileFormat::Toml)).build();
        let config: Config = settings.and_then(config::Config::try_deserialize).expect("default.toml is valid");
        assert_eq!(config.ledger.timeout_ms, 50);
    }

    fn replace_texts(value: &mut serde_json::Value, canary: &str) {
        match value {
            serde_json::Value::String(text) => canary.clone_into(text),
            serde_json::Value::Array(values) => values.iter_mut().for_each(|value| replace_texts(value, canary)),
            serde_json::Value::Object(fields) => fields.values_mut().for_each(|value| replace_texts(value, canary)),
            serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
        }
    }

    #[test]
    fn no_text_setting_prints_a_secret() {
        let settings = config::Config::builder().add_source(File::from_str(DEFAULT_TOML, FileFormat::Toml)).build();
        let mut config: Config = settings.and_then(config::Config::try_deserialize).expect("default.toml is valid");
        let text = String::new;
        config.geo.sources.push(GeoSourceConfig {
            url: text(),
            file: PathBuf::new(),
            sha256_url: text(),
            account_id: text(),
            license_key_file: PathBuf::new(),
        });
        config.ops.hosts.push(text());
        for canary in [
            "https://user:CANARY@h/path",
            "https://CANARY@h",
            "https://h/path?anything=CANARY",
            "https://h?CANARY",
            "redis://:CANARY@h:1,redis://:CANARY@i:2",
            "postgres://u:CAN?CANARY@h/d",
        ] {
            let mut sections = serde_json::to_value(&config).expect("settings are serialized");
            replace_texts(&mut sections, canary);
            let printed = format!("{:?}", redacted_settings_of(&sections));
            assert!(!printed.contains("CANARY"), "{canary}: {printed}");
        }
        let mut sections = serde_json::to_value(&config).expect("settings are serialized");
        replace_texts(&mut sections, "https://h/account/CANARY/db?token=CANARY");
        sections["public"].take();
        sections["acme"].take();
        assert!(!format!("{:?}", redacted_settings_of(&sections)).contains("CANARY"));
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
                assert!(commented, "no comment for: {line}");
            }
        }
    }
}
