//! Configuration: `default.toml`, then a file, then the environment. Read here and nowhere below.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use config::{Environment, File, FileFormat};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::preset::Preset;

const DEFAULT: &str = include_str!("default.toml");
/// Settings that the environment gives as a list with commas.
const LISTS: [&str; 9] = [
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
    pub(crate) public: Public,
    pub(crate) edge: Edge,
    pub(crate) acme: Acme,
    pub(crate) store: Store,
    pub(crate) ledger: Ledger,
    pub(crate) geo: Geo,
    pub(crate) portal: Portal,
    pub(crate) mail: Mail,
    pub(crate) retention: Retention,
    pub(crate) ops: Ops,
    pub(crate) log: Log,
    pub(crate) otlp: Otlp,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Public {
    pub(crate) base_url: String,
    pub(crate) docs_url: String,
    pub(crate) signup_url: String,
    pub(crate) enterprise_url: String,
    pub(crate) security_contact: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edge {
    pub(crate) http: Vec<SocketAddr>,
    pub(crate) https: Vec<SocketAddr>,
    pub(crate) reuse_port: bool,
    pub(crate) certificate_file: PathBuf,
    pub(crate) private_key_file: PathBuf,
    pub(crate) certificates: Vec<Certificate>,
    pub(crate) certificate_watch_interval_ms: u64,
    pub(crate) http3: bool,
    pub(crate) http3_port: u16,
    pub(crate) colo: String,
    pub(crate) preset: Preset,
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
    pub(crate) connections_per_network_max: usize,
    pub(crate) files_reserved: usize,
    pub(crate) accept_pause_ms: u64,
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
    pub(crate) header_lines_max: usize,
    pub(crate) streams_max: u32,
    pub(crate) resets_max: usize,
    pub(crate) unasked_bytes_max: usize,
    pub(crate) flood_penalty_ms: u64,
    pub(crate) unproven_max: usize,
}

/// A certificate beside the first.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Certificate {
    pub(crate) certificate_file: PathBuf,
    pub(crate) private_key_file: PathBuf,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Acme {
    pub(crate) names: Vec<String>,
    pub(crate) directory_url: String,
    pub(crate) contact: Vec<String>,
    pub(crate) terms_agreed: bool,
    pub(crate) challenge: String,
    pub(crate) folder: PathBuf,
    pub(crate) ca_file: PathBuf,
    pub(crate) check_interval_s: u64,
    pub(crate) renew_before_h: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Store {
    pub(crate) url: String,
    pub(crate) url_file: PathBuf,
    pub(crate) connections_max: u32,
    pub(crate) timeout_ms: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ledger {
    pub(crate) url: String,
    pub(crate) url_file: PathBuf,
    pub(crate) timeout_ms: u64,
    pub(crate) lookups_max: usize,
    pub(crate) unknown_max: usize,
    pub(crate) refused_max: usize,
    pub(crate) failures_max: u32,
    pub(crate) probe_interval_ms: u64,
    pub(crate) recall_max_s: u64,
    pub(crate) recall_keys_max: usize,
    pub(crate) rollup_interval_ms: u64,
    pub(crate) rollup_keys_max: usize,
    pub(crate) relay_interval_ms: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Geo {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) hosting_lists: Vec<PathBuf>,
    pub(crate) proxy_lists: Vec<PathBuf>,
    pub(crate) watch: bool,
    pub(crate) watch_interval_ms: u64,
    pub(crate) allow_older: bool,
    pub(crate) told_max: usize,
    pub(crate) sources: Vec<Source>,
    pub(crate) update_interval_h: u64,
    pub(crate) update_bytes_max: u64,
    pub(crate) update_timeout_ms: u64,
    pub(crate) update_idle_timeout_ms: u64,
    pub(crate) ca_file: PathBuf,
}

/// Where a geo file is fetched from.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    pub(crate) url: String,
    pub(crate) file: PathBuf,
    #[serde(default)]
    pub(crate) sha256_url: String,
    #[serde(default)]
    pub(crate) account_id: String,
    #[serde(default)]
    pub(crate) licence_key_file: PathBuf,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Portal {
    pub(crate) enabled: bool,
    pub(crate) signup: Signup,
    pub(crate) session_days: u32,
    pub(crate) hashes_max: usize,
    pub(crate) hashes_waiting_max: usize,
    pub(crate) tries_per_network_max: u32,
    pub(crate) tries_per_account_max: u32,
    pub(crate) tries_entries_max: usize,
    pub(crate) streams_max: usize,
    pub(crate) form_bytes_max: usize,
    pub(crate) connections_max: u32,
    pub(crate) timeout_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Signup {
    Open,
    Closed,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mail {
    pub(crate) smtp_url: String,
    pub(crate) smtp_url_file: PathBuf,
    pub(crate) from: String,
    pub(crate) timeout_ms: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retention {
    pub(crate) usage_days: u16,
    pub(crate) history_days: u16,
    pub(crate) interval_s: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ops {
    pub(crate) listen: SocketAddr,
    pub(crate) connections_max: usize,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
    pub(crate) access: bool,
    pub(crate) change_s_max: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Otlp {
    pub(crate) endpoint: String,
    pub(crate) traces_share: f64,
    pub(crate) queue_max: usize,
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
    pub(crate) fn open(file: Option<&Path>) -> Result<Self> {
        let mut builder = config::Config::builder().add_source(File::from_str(DEFAULT, FileFormat::Toml));
        if let Some(file) = file {
            builder = builder.add_source(File::from(file).format(FileFormat::Toml));
        }
        let mut environment = Environment::with_prefix("IPSEITY")
            .prefix_separator("__")
            .separator("__")
            .try_parsing(true)
            .ignore_empty(true)
            .list_separator(",");
        for list in LISTS {
            environment = environment.with_list_parse_key(list);
        }
        let settings = builder.add_source(environment).build().context("the configuration cannot be read")?;
        let mut config: Self = settings
            .try_deserialize()
            .context("the configuration is not valid; `default.toml` in the documentation names every setting")?;
        config.edge.preset.fill(&mut config.edge);
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
            let addresses = [&source.url, &source.sha256_url];
            let is_secure = addresses.iter().all(|url| url.is_empty() || url.starts_with("https://"));
            ensure!(is_secure && !source.url.is_empty(), "[[geo.sources]] url and sha256_url begin with https://");
        }
        Ok(config)
    }

    /// Every setting on a line of its own; passwords within addresses are left out.
    pub(crate) fn redacted(&self) -> Result<Vec<String>> {
        let mut shown = self.clone();
        shown.ledger.url = without_passwords(&shown.ledger.url);
        let urls = [&mut shown.store.url, &mut shown.mail.smtp_url];
        for url in urls.into_iter().filter(|url| !url.is_empty()) {
            *url = without_password(url);
        }
        for source in &mut shown.geo.sources {
            for url in [&mut source.url, &mut source.sha256_url].into_iter().filter(|url| !url.is_empty()) {
                *url = without_password(url);
            }
        }
        let sections = serde_json::to_value(shown)?;
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
pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
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
pub(crate) fn without_passwords(urls: &str) -> String {
    let urls: Vec<_> = urls.split(',').map(str::trim).collect();
    if urls.iter().any(|url| !url.contains("://")) {
        // A comma that was not escaped in a password, perhaps.
        return "…".to_owned();
    }
    urls.into_iter().map(without_password).collect::<Vec<_>>().join(",")
}

/// `postgres://user:password@host/…?password=…` without the passwords. What cannot be taken apart is not shown at all.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "…".to_owned() };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    if query.contains('@') {
        // A question mark that was not escaped in the password, perhaps.
        return format!("{scheme}://…");
    }
    let place = match place.rsplit_once('@') {
        Some((credentials, host)) => format!("{}:…@{host}", credentials.split(':').next().unwrap_or_default()),
        None => place.to_owned(),
    };
    let shown = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}=…"),
        Some(_) | None => pair.to_owned(),
    };
    let query: Vec<_> = query.split('&').filter(|pair| !pair.is_empty()).map(shown).collect();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{scheme}://{place}{mark}{}", query.join("&"))
}

/// Whether a parameter's name says that its value is nobody's business.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["pass", "key", "token", "secret", "sig"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_complete_and_knows_no_other_setting() {
        let settings = config::Config::builder().add_source(File::from_str(DEFAULT, FileFormat::Toml)).build();
        let config: Config = settings.and_then(config::Config::try_deserialize).expect("the default is valid");
        assert_eq!(config.ledger.timeout_ms, 50);
    }

    #[test]
    fn every_setting_of_the_default_has_a_comment_above_it() {
        let mut commented = false;
        for line in DEFAULT.lines() {
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
    fn a_password_is_never_shown() {
        assert_eq!(without_password("redis://u:se:c@ret@h:1/0"), "redis://u:…@h:1/0");
        assert_eq!(without_password("redis://h:1"), "redis://h:1");
        assert_eq!(without_password("postgres://h/d?user=u&password=secret"), "postgres://h/d?user=u&password=…");
        assert_eq!(
            without_password("https://h/d?edition_id=e&license_key=secret"),
            "https://h/d?edition_id=e&license_key=…"
        );
        assert_eq!(without_password("u:secret@h"), "…");
        assert_eq!(without_password("postgres://u:se?cret@h/d"), "postgres://…");
        assert_eq!(without_passwords("redis://u:secret@h:1, redis://:secret@i:2"), "redis://u:…@h:1,redis://:…@i:2");
        assert_eq!(without_passwords("redis://u:se,cret@h:1"), "…");
    }
}
