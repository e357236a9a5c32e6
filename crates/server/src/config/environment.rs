//! Settings in environment variables. They override files, also if they are empty.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use config::{ConfigError, Map, Source, Value, ValueKind};

use crate::config::defaults::DEFAULT_TOML;
use crate::config::unknown_settings::{hint, is_known};

const PREFIX: &str = "IPSEITY__";
/// What errors call the source of a value.
const ORIGIN: &str = "the environment";
/// Settings whose variable is a comma-separated list.
const LIST_SETTINGS: [&str; 13] = [
    "edge.http",
    "edge.https",
    "edge.trusted_proxies",
    "edge.proxy_protocol",
    "acme.domains",
    "acme.contact",
    "home.advertised_urls",
    "home.urls",
    "alerts.allowed_networks",
    "geo.files",
    "geo.hosting_asn_lists",
    "geo.proxy_asn_lists",
    "ops.hosts",
];
/// Settings whose variable is a JSON array of objects.
const TABLE_SETTINGS: [&str; 2] = ["edge.certificates", "geo.sources"];
/// Settings that can be in a file, which is the setting with `_file` appended.
const SECRETS: [&str; 3] = ["store.url", "ledger.url", "mail.smtp_url"];

/// The variables by the path of their setting, such as `edge.http`.
#[derive(Clone, Debug)]
pub(super) struct EnvironmentSettings(BTreeMap<String, String>);

impl EnvironmentSettings {
    /// # Errors
    /// If a variable would be ignored.
    pub(super) fn read() -> Result<Self> {
        let mut settings = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            let Some(name) = name.to_str() else { continue };
            let name = name.to_uppercase();
            if let Some(setting) = name.strip_prefix(PREFIX) {
                let value = value.into_string().ok().with_context(|| format!("{name} is not valid UTF-8"))?;
                let setting = setting.to_lowercase().replace("__", ".");
                ensure!(is_known(&setting), "{name} is not a setting. {}", hint(&setting, variable));
                settings.insert(setting, value);
            } else {
                ensure_no_setting(&name)?;
            }
        }
        for secret in SECRETS {
            let file = format!("{secret}_file");
            let has_file = settings.get(&file).is_some_and(|file| !file.is_empty());
            if let Some(url) = settings.get(secret) {
                ensure!(
                    !has_file || url.is_empty(),
                    "{} and {} are both set. Unset one.",
                    variable(secret),
                    variable(&file)
                );
            }
            if settings.contains_key(secret) && !has_file {
                // Otherwise the file of a configuration file would win.
                settings.insert(file, String::new());
            }
        }
        Ok(Self(settings))
    }
}

impl Source for EnvironmentSettings {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        self.0.iter().map(|(setting, text)| Ok((setting.clone(), parse_value(setting, text)?))).collect()
    }
}

fn parse_value(setting: &str, text: &str) -> Result<Value, ConfigError> {
    let origin = ORIGIN.to_owned();
    let string = |text: &str| Value::new(Some(&origin), ValueKind::String(text.to_owned()));
    if LIST_SETTINGS.contains(&setting) {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        return Ok(Value::new(Some(&origin), ValueKind::Array(items.map(string).collect())));
    }
    if TABLE_SETTINGS.contains(&setting) {
        return parse_tables(setting, text);
    }
    let kind = match text.to_lowercase().parse() {
        Ok(boolean) => ValueKind::Boolean(boolean),
        Err(_) => match (text.parse(), text.parse()) {
            (Ok(integer), _) => ValueKind::I64(integer),
            // Rust parses `NaN` and `Inf`, but the first is an airport.
            (Err(_), Ok(float)) if f64::is_finite(float) => ValueKind::Float(float),
            (Err(_), Ok(_) | Err(_)) => return Ok(string(text)),
        },
    };
    Ok(Value::new(Some(&origin), kind))
}

fn parse_tables(setting: &str, text: &str) -> Result<Value, ConfigError> {
    let tables: Vec<BTreeMap<String, String>> = match text.trim() {
        "" => Vec::new(),
        text => serde_json::from_str(text).map_err(|error| {
            // The message shows no value, which may contain a key.
            let position = format!("line {}, column {}", error.line(), error.column());
            let expected =
                "a JSON array of objects with texts, such as [{\"url\":\"https://…\",\"file\":\"city.mmdb\"}]";
            ConfigError::Message(format!("{} must be {expected} (error in {position})", variable(setting)))
        })?,
    };
    let origin = ORIGIN.to_owned();
    let to_value = |kind: ValueKind| Value::new(Some(&origin), kind);
    let tables = tables.into_iter().map(|table| {
        let fields = table.into_iter().map(|(name, text)| (name, to_value(ValueKind::String(text))));
        to_value(ValueKind::Table(fields.collect()))
    });
    Ok(to_value(ValueKind::Array(tables.collect())))
}

/// Rejects a variable such as `IPSEITY_STORE_URL`, which lacks underscores. Others may be of another program: Kubernetes sets
/// `IPSEITY_OPS_SERVICE_HOST` for a service with the name `ipseity-ops`.
fn ensure_no_setting(name: &str) -> Result<()> {
    if !name.starts_with("IPSEITY_") {
        return Ok(());
    }
    let mut section = "";
    for line in DEFAULT_TOML.lines() {
        section = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')).unwrap_or(section);
        if let Some((setting, _)) = line.split_once(" = ") {
            let meant = variable(&format!("{section}.{setting}"));
            ensure!(
                name.replace("__", "_") != meant.replace("__", "_"),
                "{name} is not a setting. Did you mean {meant}?"
            );
        }
    }
    Ok(())
}

fn variable(setting: &str) -> String {
    format!("{PREFIX}{}", setting.replace('.', "__").to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_without_enough_underscores_is_rejected() {
        for name in ["IPSEITY_STORE_URL", "IPSEITY_LEDGER__TIMEOUT_MS", "IPSEITY_OPS_LISTEN"] {
            let error = ensure_no_setting(name).expect_err("rejected").to_string();
            assert!(error.contains("Did you mean IPSEITY__"), "{error}");
        }
        for name in [
            "IPSEITY_OPS_SERVICE_HOST",
            "IPSEITY_CONFIG",
            "IPSEITY_DATABASE_PASSWORD",
            "IPSEITY_FAILPOINTS",
            "STORE_URL",
        ] {
            ensure_no_setting(name).expect(name);
        }
    }

    #[test]
    fn empty_variable_is_an_empty_list_or_text() {
        let parse = |setting, text| parse_value(setting, text).expect("valid");
        assert_eq!(parse("edge.http", "").into_array().expect("list").len(), 0);
        assert_eq!(parse("edge.http", "a, b").into_array().expect("list").len(), 2);
        assert_eq!(parse("edge.colo", "").into_string().expect("text"), "");
        assert_eq!(parse("ledger.timeout_ms", "50").into_int().expect("number"), 50);
        assert!(parse("edge.http3", "True").into_bool().expect("boolean"));
        assert_eq!(parse("otlp.trace_sample_ratio", "0.5").into_float().expect("number").to_string(), "0.5");
    }

    #[test]
    fn colo_that_rust_parses_as_a_number_is_a_text() {
        for colo in ["NAN", "INF"] {
            let value = parse_value("edge.colo", colo).expect("valid");
            assert_eq!(value.kind, ValueKind::String(colo.to_owned()));
        }
    }

    #[test]
    fn tables_are_json_and_errors_show_no_value() {
        let parse = |text| parse_value("geo.sources", text);
        assert_eq!(parse(" ").expect("valid").into_array().expect("list").len(), 0);
        let sources = parse(r#"[{"url": "https://h/a", "file": "a.mmdb"}]"#).expect("valid").into_array();
        let source = sources.expect("list").remove(0).into_table().expect("table");
        assert_eq!(source["file"].clone().into_string().expect("text"), "a.mmdb");
        for invalid in ["https://s3cr3t", r#"["s3cr3t"]"#, r#"{"url": "s3cr3t"}"#, r#"[{"url": ["s3cr3t"]}]"#] {
            let error = parse(invalid).expect_err("rejected").to_string();
            assert!(error.contains("IPSEITY__GEO__SOURCES must be a JSON array"), "{error}");
            assert!(!error.contains("s3cr3t"), "{error}");
        }
    }
}
