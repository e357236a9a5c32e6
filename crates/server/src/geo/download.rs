//! Downloads a file over HTTPS with conditional requests and limits on size and time.
//!
//! The content is validated elsewhere. Errors never contain a full URL, because its query may contain a key.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use reqwest::{Certificate, Client, RequestBuilder, Response, redirect};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::config::{GeoConfig, GeoSourceConfig, millis};
use crate::geo::extract::too_large_message;

const REDIRECTS_MAX: usize = 5;
const CHECKSUM_BYTES_MAX: u64 = 4096;
/// Used if the server sends no Retry-After header.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(60);

/// Called with the received bytes and, if the server sends it, the total size.
pub(crate) type ProgressCallback<'a> = &'a mut (dyn FnMut(u64, Option<u64>) + Send);

/// Validators of the last download, for a conditional request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HttpValidators {
    pub(crate) etag: Option<String>,
    pub(crate) last_modified: Option<String>,
}

pub(crate) enum DownloadOutcome {
    /// The file was downloaded; with the SHA-256 of its bytes.
    Completed(HttpValidators, [u8; 32]),
    NotModified,
    RetryAfter(Duration),
}

pub(crate) struct Downloader {
    client: Client,
    bytes_max: u64,
}

impl Downloader {
    pub(crate) fn open(settings: &GeoConfig) -> Result<Self> {
        let idle_timeout = millis(settings.update_idle_timeout_ms);
        let mut builder = Client::builder()
            .user_agent(concat!("ipseity/", env!("CARGO_PKG_VERSION")))
            .https_only(true)
            .redirect(redirect::Policy::limited(REDIRECTS_MAX))
            .connect_timeout(idle_timeout)
            .read_timeout(idle_timeout);
        if !settings.ca_file.as_os_str().is_empty() {
            let error_context = || format!("failed to load [geo] ca_file {}", settings.ca_file.display());
            let pem = std::fs::read(&settings.ca_file).with_context(error_context)?;
            builder = builder.tls_certs_only(Certificate::from_pem_bundle(&pem).with_context(error_context)?);
        }
        for source in settings.sources.iter().filter(|source| !source.account_id.is_empty()) {
            read_license_key(&source.license_key_file)?;
        }
        let client = builder.build().context("failed to create the HTTPS client")?;
        Ok(Self { client, bytes_max: settings.update_bytes_max })
    }

    /// Downloads a source into a file, unless the file that `current` describes is still the newest.
    pub(crate) async fn download(
        &self,
        source: &GeoSourceConfig,
        current: &HttpValidators,
        output: &mut File,
        progress: ProgressCallback<'_>,
    ) -> Result<DownloadOutcome> {
        let [this_month, last_month] = monthly_urls(&source.url, Timestamp::now());
        let mut response = self.request_unless_current(source, &this_month, current).await?;
        // A new edition may be published some days later.
        if response.status() == StatusCode::NOT_FOUND && this_month != last_month {
            response = self.request_unless_current(source, &last_month, current).await?;
        }
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED => return Ok(DownloadOutcome::NotModified),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                return Ok(DownloadOutcome::RetryAfter(parse_retry_after(response.headers(), SystemTime::now())));
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                bail!("the server denied access; check account_id and license_key_file")
            }
            status => bail!("the server responded with {status}"),
        }
        let header_text = |name| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let validators =
            HttpValidators { etag: header_text(header::ETAG), last_modified: header_text(header::LAST_MODIFIED) };
        let mut digest = Sha256::new();
        let (mut received_bytes, total_bytes) = (0, response.content_length());
        ensure!(total_bytes.unwrap_or_default() <= self.bytes_max, too_large_message(self.bytes_max));
        while let Some(chunk) = response.chunk().await.map_err(without_url).context("the download was interrupted")? {
            received_bytes += chunk.len() as u64;
            ensure!(received_bytes <= self.bytes_max, too_large_message(self.bytes_max));
            digest.update(&chunk);
            output.write_all(&chunk).await.context("failed to write the download")?;
            progress(received_bytes, total_bytes);
        }
        output.flush().await.context("failed to write the download")?;
        Ok(DownloadOutcome::Completed(validators, digest.finalize().into()))
    }

    async fn request_unless_current(
        &self,
        source: &GeoSourceConfig,
        url: &str,
        current: &HttpValidators,
    ) -> Result<Response> {
        let mut request = self.build_request(source, url)?;
        for (name, value) in
            [(header::IF_NONE_MATCH, &current.etag), (header::IF_MODIFIED_SINCE, &current.last_modified)]
        {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        send(request).await
    }

    /// The SHA-256 that a source publishes; `None` without a `sha256_url`.
    pub(crate) async fn fetch_checksum(&self, source: &GeoSourceConfig) -> Result<Option<[u8; 32]>> {
        if source.sha256_url.is_empty() {
            return Ok(None);
        }
        let mut response =
            send(self.build_request(source, &source.sha256_url)?).await.context("failed to download the checksum")?;
        ensure!(
            response.status() == StatusCode::OK,
            "the server responded with {} for the checksum",
            response.status()
        );
        let mut text = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(without_url).context("failed to download the checksum")?
        {
            text.extend_from_slice(&chunk);
            ensure!(
                text.len() as u64 <= CHECKSUM_BYTES_MAX,
                "the checksum file is larger than {CHECKSUM_BYTES_MAX} bytes"
            );
        }
        parse_checksum(&text).context("the checksum file does not start with a SHA-256").map(Some)
    }

    fn build_request(&self, source: &GeoSourceConfig, url: &str) -> Result<RequestBuilder> {
        let request = self.client.get(url);
        if source.account_id.is_empty() {
            return Ok(request);
        }
        Ok(request.basic_auth(&source.account_id, Some(read_license_key(&source.license_key_file)?)))
    }
}

/// The URLs of this month's edition and of the one before, if the URL names them with `{year}` and `{month}`.
fn monthly_urls(url: &str, now: Timestamp) -> [String; 2] {
    let first_day = now.to_zoned(TimeZone::UTC).date().first_of_month();
    [first_day, first_day.yesterday().unwrap_or(first_day)].map(|day| {
        let (year, month) = (format!("{:04}", day.year()), format!("{:02}", day.month()));
        url.replace("{year}", &year).replace("{month}", &month)
    })
}

fn read_license_key(file: &Path) -> Result<String> {
    let error_context = || format!("failed to read license_key_file {}", file.display());
    Ok(std::fs::read_to_string(file).with_context(error_context)?.trim().to_owned())
}

async fn send(request: RequestBuilder) -> Result<Response> {
    request.send().await.map_err(without_url).context("failed to connect to the server")
}

/// Removes the URL from an error, because its query may contain a key.
fn without_url(error: reqwest::Error) -> anyhow::Error {
    if error.is_timeout() {
        return anyhow::anyhow!("timed out waiting for the server");
    }
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    anyhow::anyhow!("{cause}")
}

/// Parses seconds or a date; RFC 9110, section 10.2.3, allows both.
fn parse_retry_after(headers: &HeaderMap, now: SystemTime) -> Duration {
    let Some(text) = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()) else {
        return RETRY_AFTER_DEFAULT;
    };
    match text.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text)
            .map_or(RETRY_AFTER_DEFAULT, |date| date.duration_since(now).unwrap_or_default()),
    }
}

/// Parses `<64 hexadecimal digits>  <name>`.
fn parse_checksum(text: &[u8]) -> Option<[u8; 32]> {
    let word = std::str::from_utf8(text).ok()?.split_whitespace().next()?;
    let mut digest = [0; 32];
    hex::decode_to_slice(word, &mut digest).ok()?;
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_this_month_and_the_one_before() {
        let now = "2027-01-01T00:00:00Z".parse().expect("valid time");
        let urls = monthly_urls("https://example.com/city-{year}-{month}.mmdb.gz", now);
        assert_eq!(urls, ["2027-01", "2026-12"].map(|month| format!("https://example.com/city-{month}.mmdb.gz")));
        let fixed = "https://example.com/city.mmdb";
        assert_eq!(monthly_urls(fixed, now), [fixed, fixed]);
    }

    #[test]
    fn checksum_parses_with_or_without_a_file_name() {
        let hex = "00ff".repeat(16);
        let mut digest = [0; 32];
        digest.iter_mut().skip(1).step_by(2).for_each(|byte| *byte = 0xff);
        for text in [hex.clone(), format!("{hex}  GeoLite2-City.tar.gz\n"), hex.to_uppercase()] {
            assert_eq!(parse_checksum(text.as_bytes()), Some(digest), "{text}");
        }
        for text in ["", "00ff", &"zz".repeat(32), "<html>"] {
            assert_eq!(parse_checksum(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn geo_download_retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_794_700_000);
        for (text, wait_s) in [
            ("7", 7),
            (&*httpdate::fmt_http_date(now + Duration::from_secs(90)), 90),
            (&*httpdate::fmt_http_date(now - Duration::from_secs(90)), 0),
            ("soon", 60),
        ] {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, text.parse().expect("valid header"))]);
            assert_eq!(parse_retry_after(&headers, now), Duration::from_secs(wait_s), "{text}");
        }
        assert_eq!(parse_retry_after(&HeaderMap::new(), now), RETRY_AFTER_DEFAULT);
    }
}
