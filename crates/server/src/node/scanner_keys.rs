//! Reads the keys that GitHub signs reports of leaked keys with.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipseity_domain::causes;
use reqwest::Client;

const TIMEOUT: Duration = Duration::from_secs(3);
const DOCUMENT_BYTES_MAX: usize = 64 << 10;

/// The source of the keys. Empty URL: there is none.
pub(crate) struct ScannerKeysSource {
    client: Client,
    url: String,
}

impl ScannerKeysSource {
    pub(crate) fn open(url: &str) -> Result<Self> {
        // Only tests read from this machine.
        let is_local = url.starts_with("http://127.0.0.1:");
        ensure!(
            url.is_empty() || url.starts_with("https://") || is_local,
            "[portal] github_keys_url must start with https://"
        );
        let client = Client::builder()
            .user_agent(concat!("ipseity/", env!("CARGO_PKG_VERSION")))
            .https_only(!is_local)
            .timeout(TIMEOUT)
            .build()
            .context("failed to create the HTTPS client")?;
        Ok(Self { client, url: url.to_owned() })
    }

    /// The document with the keys.
    pub(crate) async fn fetch(&self) -> Option<String> {
        match self.try_fetch().await {
            Ok(document) => Some(document),
            Err(error) => {
                tracing::warn!(error = %causes(&*error), "failed to read the keys of [portal] github_keys_url");
                None
            }
        }
    }

    async fn try_fetch(&self) -> Result<String> {
        let mut response = self.client.get(&self.url).send().await?.error_for_status()?;
        let mut document = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            ensure!(document.len() + chunk.len() <= DOCUMENT_BYTES_MAX, "the document is too large");
            document.extend_from_slice(&chunk);
        }
        String::from_utf8(document).context("the document is not text")
    }
}
