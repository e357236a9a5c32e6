//! Secrets in settings: read from files, and redacted before they are printed.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// Replaces a setting by the content of its file, if one is configured.
pub(super) fn read_secret(value: &mut String, file: &Path) -> Result<()> {
    if !file.as_os_str().is_empty() {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("failed to read {}, which a setting ending in `_file` names", file.display()))?;
        text.trim().clone_into(value);
    }
    Ok(())
}

/// Redacts a comma-separated list of URLs, each of which may have several hosts.
pub(crate) fn redact_urls(urls: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in urls.split(',').map(str::trim) {
        match parts.last_mut() {
            _ if part.contains("://") => parts.push(part.to_owned()),
            // Another host of the same URL.
            Some(last) if !part.contains('@') => {
                last.push(',');
                last.push_str(part);
            }
            // Possibly an unescaped comma in a password.
            _ => return "…".to_owned(),
        }
    }
    parts.iter().map(|url| redact_url(url)).collect::<Vec<_>>().join(",")
}

/// Parameters of a URL that hold no secret. All others are redacted.
const SHOWN_PARAMS: [&str; 12] = [
    "application_name",
    "dbname",
    "edition_id",
    "host",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "suffix",
    "target_session_attrs",
    "user",
];
/// Sections whose URLs are public. Elsewhere, the path of an HTTP URL may contain a key.
const PUBLIC_SECTIONS: [&str; 2] = ["public", "acme"];

/// Redacts the credentials and parameters in `postgres://user:password@host/…?password=…`. A URL that cannot be parsed is
/// redacted entirely.
pub(crate) fn redact_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "…".to_owned() };
    let (authority_and_path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if query.contains('@') {
        // Possibly an unescaped question mark in the password.
        return format!("{scheme}://…");
    }
    let authority_and_path = match authority_and_path.rsplit_once('@').map(|(user, host)| (user.split_once(':'), host))
    {
        Some((Some((user, _)), host)) => format!("{user}:…@{host}"),
        // A user without a password may be a token.
        Some((None, host)) => format!("…@{host}"),
        None => authority_and_path.to_owned(),
    };
    let redact_param = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if !SHOWN_PARAMS.contains(&name) => format!("{name}=…"),
        Some(_) => pair.to_owned(),
        None => "…".to_owned(),
    };
    let query: Vec<_> = query.split('&').filter(|pair| !pair.is_empty()).map(redact_param).collect();
    let separator = if query.is_empty() { "" } else { "?" };
    format!("{scheme}://{authority_and_path}{separator}{}", query.join("&"))
}

/// Redacts every text of a setting that is a URL, whatever its name is, and every text that should be one.
pub(super) fn redact_setting(section: &str, name: &str, value: Value) -> Value {
    match value {
        Value::String(text) if text.contains("://") || (!text.is_empty() && is_url_setting(name)) => {
            let redacted = redact_urls(&text);
            let hides_path = redacted.starts_with("http") && !PUBLIC_SECTIONS.contains(&section);
            Value::String(if hides_path { redact_path(&redacted) } else { redacted })
        }
        Value::Array(values) => values.into_iter().map(|value| redact_setting(section, name, value)).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name.clone(), redact_setting(section, &name, value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

fn is_url_setting(name: &str) -> bool {
    name.ends_with("url") || name == "endpoint"
}

fn redact_path(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let query = path.split_once('?').map_or(String::new(), |(_, query)| format!("?{query}"));
    let hidden = if path.starts_with('/') { "/…" } else { "" };
    format!("{scheme}://{host}{hidden}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacted_urls_contain_no_password() {
        assert_eq!(redact_url("redis://u:se:c@ret@h:1/0"), "redis://u:…@h:1/0");
        assert_eq!(redact_url("redis://h:1"), "redis://h:1");
        assert_eq!(redact_url("postgres://h/d?user=u&password=secret"), "postgres://h/d?user=u&password=…");
        assert_eq!(redact_url("https://h/d?edition_id=e&license_key=secret"), "https://h/d?edition_id=e&license_key=…");
        assert_eq!(redact_url("https://token@h/d"), "https://…@h/d");
        assert_eq!(redact_url("https://h/d?sslmode=require&anything=secret"), "https://h/d?sslmode=require&anything=…");
        assert_eq!(redact_url("u:secret@h"), "…");
        assert_eq!(redact_url("postgres://u:se?cret@h/d"), "postgres://…");
        assert_eq!(redact_urls("redis://u:secret@h:1, redis://:secret@i:2"), "redis://u:…@h:1,redis://:…@i:2");
        assert_eq!(redact_urls("redis://u:se,cret@h:1"), "…");
        assert_eq!(redact_urls("secret,redis://h:1"), "…");
        assert_eq!(
            redact_urls("postgres://u:secret@h:1,i:2/d?target_session_attrs=read-write&password=sec,ret"),
            "postgres://u:…@h:1,i:2/d?target_session_attrs=read-write&password=…"
        );
    }
}
