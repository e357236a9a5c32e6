//! The certificates of the configuration, and the watch over their files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipseity_edge::{AcmeClient, CertResolver, CertificateFiles, Drain};
use prometheus_client::registry::Registry;
use tokio::time::MissedTickBehavior;

use crate::config::Config;
use crate::tasks::outcome_counter::OutcomeCounter;

/// More often than this would be all that a thread does.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(10);

const RELOADED: &str = "reloaded";
const REJECTED: &str = "rejected";

/// Reads and checks every certificate that the settings name; the one that ACME keeps may still be missing.
pub(crate) fn open_cert_resolver(config: &Config) -> Result<CertResolver> {
    let settings = &config.edge;
    let uses_acme = !config.acme.domains.is_empty();
    let default_pair =
        [("certificate_file", &settings.certificate_file), ("private_key_file", &settings.private_key_file)];
    let has_default_pair = default_pair.iter().any(|(_, file)| !file.as_os_str().is_empty());
    let mut pairs = Vec::new();
    if has_default_pair || !uses_acme {
        for (name, file) in default_pair {
            ensure!(!file.as_os_str().is_empty(), "[edge] {name} is empty; the listeners of [edge] https need it");
        }
        pairs.push(certificate_files(&settings.certificate_file, &settings.private_key_file));
    }
    pairs.extend(
        settings.certificates.iter().map(|pair| certificate_files(&pair.certificate_file, &pair.private_key_file)),
    );
    let cert_resolver =
        CertResolver::open(&pairs).context("[edge] a certificate_file and its private_key_file cannot be used")?;
    Ok(if uses_acme {
        cert_resolver.with_pending(AcmeClient::certificate_files(&config.acme.dir))
    } else {
        cert_resolver
    })
}

fn certificate_files(certificate: &Path, private_key: &Path) -> CertificateFiles {
    CertificateFiles { certificate: certificate.into(), private_key: private_key.into() }
}

/// Watches the files by polling, which sees a turned link, a network file system and a container's volume alike.
pub(crate) struct CertificateReloadWorker {
    interval: Duration,
    reloads: OutcomeCounter,
}

impl CertificateReloadWorker {
    pub(crate) fn register(registry: &mut Registry, interval: Duration) -> Self {
        let reloads = OutcomeCounter::register(
            registry,
            "certificate_reloads",
            "Certificates that changed, by what became of them",
            [RELOADED, REJECTED],
        );
        Self { interval: interval.max(CHECK_INTERVAL_MIN), reloads }
    }

    /// Watches until the drain starts.
    pub(crate) async fn run(self, cert_resolver: Arc<CertResolver>, drain: Drain) {
        let mut tick = tokio::time::interval(self.interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => self.check_files(&cert_resolver).await,
                () = drain.started() => return,
            }
        }
    }

    async fn check_files(&self, cert_resolver: &Arc<CertResolver>) {
        let cert_resolver = Arc::clone(cert_resolver);
        // A file system that does not answer must not hold up the threads that do.
        let Ok(reload) = tokio::task::spawn_blocking(move || cert_resolver.reload()).await else {
            tracing::error!("looking at the certificates panicked");
            return;
        };
        for files in &reload.replaced {
            tracing::info!(file = %files.certificate.display(), "a certificate was replaced");
            self.reloads.inc(RELOADED);
        }
        for error in &reload.refused {
            let error = error as &dyn std::error::Error;
            tracing::warn!(error, "a certificate was refused; the one before it stays");
            self.reloads.inc(REJECTED);
        }
    }
}
