//! Opens the configured certificates and reloads their files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipseity_domain::causes;
use ipseity_edge::{AcmeClient, CertResolver, CertificateFiles, Drain};
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::config::Config;
use crate::tasks::outcome_counter::OutcomeCounter;
use crate::tasks::periodic::run_on_reload;

/// Limits the load of an accidental interval of 0.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(10);

const RELOADED: &str = "reloaded";
const REJECTED: &str = "rejected";

/// Reads and validates every configured certificate. The certificate of `[acme]` may be missing.
pub(crate) fn open_cert_resolver(config: &Config) -> Result<CertResolver> {
    let settings = &config.edge;
    let uses_acme = !config.acme.domains.is_empty();
    let default_pair =
        [("certificate_file", &settings.certificate_file), ("private_key_file", &settings.private_key_file)];
    let has_default_pair = default_pair.iter().any(|(_, file)| !file.as_os_str().is_empty());
    let mut pairs = Vec::new();
    if has_default_pair || !uses_acme {
        for (name, file) in default_pair {
            ensure!(!file.as_os_str().is_empty(), "[edge] {name} is empty. The listeners of [edge] https need it.");
        }
        pairs.push(certificate_files(&settings.certificate_file, &settings.private_key_file));
    }
    pairs.extend(
        settings.certificates.iter().map(|pair| certificate_files(&pair.certificate_file, &pair.private_key_file)),
    );
    let cert_resolver = CertResolver::open(&pairs).context("failed to load the certificates of [edge]")?;
    Ok(if uses_acme {
        cert_resolver.with_pending(AcmeClient::certificate_files(&config.acme.dir))
    } else {
        cert_resolver
    })
}

fn certificate_files(certificate: &Path, private_key: &Path) -> CertificateFiles {
    CertificateFiles { certificate: certificate.into(), private_key: private_key.into() }
}

/// Polls the files. Unlike inotify, polling also notices replaced symlinks, network file systems and container volumes.
pub(crate) struct CertificateReloadWorker {
    interval: Duration,
    reloads: OutcomeCounter,
}

impl CertificateReloadWorker {
    pub(crate) fn register(registry: &mut Registry, interval: Duration) -> Self {
        let reloads = OutcomeCounter::register(
            registry,
            "certificate_reloads",
            "Changed certificate files, by outcome",
            [RELOADED, REJECTED],
        );
        Self { interval: interval.max(CHECK_INTERVAL_MIN), reloads }
    }

    /// Runs until the drain starts.
    pub(crate) async fn run(
        self,
        cert_resolver: Arc<CertResolver>,
        reload_requests: watch::Receiver<()>,
        drain: Drain,
    ) {
        run_on_reload(Some(self.interval), reload_requests, &drain, || self.check_files(&cert_resolver)).await;
    }

    async fn check_files(&self, cert_resolver: &Arc<CertResolver>) {
        let cert_resolver = Arc::clone(cert_resolver);
        // A slow file system must not block the threads that serve requests.
        let Ok(reload) = tokio::task::spawn_blocking(move || cert_resolver.reload()).await else {
            tracing::error!("certificate reload panicked");
            return;
        };
        for files in &reload.reloaded {
            tracing::info!(file = %files.certificate.display(), "certificate reloaded");
            self.reloads.inc(RELOADED);
        }
        for error in &reload.rejected {
            tracing::warn!(error = %causes(error), "certificate rejected");
            self.reloads.inc(REJECTED);
        }
    }
}
