//! Configuration: `default.toml`, then a file, then the environment. Read here and nowhere below.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use config::{Environment, File, FileFormat};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

const DEFAULT: &str = include_str!("default.toml");
/// Settings that the environment gives as a list with commas.
const LISTS: [&str; 4] = ["edge.http", "edge.https", "edge.trusted_proxies", "geo.files"];

/// All settings; what each means stands in `default.toml`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) public: Public,
    pub(crate) edge: Edge,
    pub(crate) store: Store,
    pub(crate) ledger: Ledger,
    pub(crate) geo: Geo,
    pub(crate) portal: Portal,
    pub(crate) ops: Ops,
    pub(crate) log: Log,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Public {
    pub(crate) base_url: String,
    pub(crate) docs_url: String,
    pub(crate) signup_url: String,
    pub(crate) enterprise_url: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edge {
    pub(crate) http: Vec<SocketAddr>,
    pub(crate) https: Vec<SocketAddr>,
    pub(crate) certificate_file: PathBuf,
    pub(crate) private_key_file: PathBuf,
    pub(crate) colo: String,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) forwarding_header: String,
    pub(crate) connections_max: usize,
    pub(crate) handshake_timeout_ms: u64,
    pub(crate) header_timeout_ms: u64,
    pub(crate) idle_timeout_ms: u64,
    pub(crate) write_timeout_ms: u64,
    pub(crate) request_timeout_ms: u64,
    pub(crate) drain_timeout_ms: u64,
    pub(crate) header_bytes_max: usize,
    pub(crate) uri_bytes_max: usize,
    pub(crate) header_lines_max: usize,
    pub(crate) streams_max: u32,
    pub(crate) resets_max: usize,
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
    pub(crate) rollup_interval_ms: u64,
    pub(crate) rollup_keys_max: usize,
    pub(crate) relay_interval_ms: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Geo {
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Portal {
    pub(crate) enabled: bool,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ops {
    pub(crate) listen: SocketAddr,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
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
        read_secret(&mut config.store.url, &config.store.url_file)?;
        read_secret(&mut config.ledger.url, &config.ledger.url_file)?;
        Ok(config)
    }

    /// Every setting on a line of its own; passwords within addresses are left out.
    pub(crate) fn redacted(&self) -> Result<Vec<String>> {
        let mut shown = self.clone();
        for url in [&mut shown.store.url, &mut shown.ledger.url] {
            *url = without_password(url);
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

/// `postgres://user:password@host/…` without the password.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    match rest.rsplit_once('@') {
        Some((credentials, host)) => {
            let user = credentials.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:…@{host}")
        }
        None => url.to_owned(),
    }
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
    }
}
