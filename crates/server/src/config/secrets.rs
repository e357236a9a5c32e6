//! Secrets in settings: read from files, and redacted before they are printed.

use std::path::Path;

use anyhow::{Context, Result};

/// Replaces a setting by the content of its file, if one is configured.
pub(super) fn read_secret(value: &mut String, file: &Path) -> Result<()> {
    if !file.as_os_str().is_empty() {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("failed to read {}, which a setting ending in `_file` names", file.display()))?;
        text.trim().clone_into(value);
    }
    Ok(())
}

/// Redacts a comma-separated list of URLs.
pub(crate) fn redact_urls(urls: &str) -> String {
    let urls: Vec<_> = urls.split(',').map(str::trim).collect();
    if urls.iter().any(|url| !url.contains("://")) {
        // Possibly an unescaped comma in a password.
        return "…".to_owned();
    }
    urls.into_iter().map(redact_url).collect::<Vec<_>>().join(",")
}

/// Redacts the passwords in `postgres://user:password@host/…?password=…`. A URL that cannot be parsed is redacted entirely.
pub(crate) fn redact_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "…".to_owned() };
    let (authority_and_path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if query.contains('@') {
        // Possibly an unescaped question mark in the password.
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

fn is_secret_param(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["pass", "key", "token", "secret", "sig"].iter().any(|word| name.contains(word))
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
        assert_eq!(redact_url("u:secret@h"), "…");
        assert_eq!(redact_url("postgres://u:se?cret@h/d"), "postgres://…");
        assert_eq!(redact_urls("redis://u:secret@h:1, redis://:secret@i:2"), "redis://u:…@h:1,redis://:…@i:2");
        assert_eq!(redact_urls("redis://u:se,cret@h:1"), "…");
    }
}
