//! The certificates of the configuration, and the watch over their files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use edge::{Acme, CertificateFiles, Drain, Wardrobe};
use prometheus_client::registry::Registry;
use tokio::time::MissedTickBehavior;

use crate::config::Config;
use crate::outcome::Outcomes;

/// More often than this would be all that a thread does.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

const REPLACED: &str = "replaced";
const REFUSED: &str = "refused";

/// Reads and checks every certificate that the settings name; the one that ACME keeps may still be missing.
pub(crate) fn open(config: &Config) -> Result<Wardrobe> {
    let settings = &config.edge;
    let is_awaited = !config.acme.names.is_empty();
    let first = [("certificate_file", &settings.certificate_file), ("private_key_file", &settings.private_key_file)];
    let is_named = first.iter().any(|(_, file)| !file.as_os_str().is_empty());
    let mut pairs = Vec::new();
    if is_named || !is_awaited {
        for (name, file) in first {
            ensure!(!file.as_os_str().is_empty(), "[edge] {name} is empty; the listeners of [edge] https need it");
        }
        pairs.push(files(&settings.certificate_file, &settings.private_key_file));
    }
    pairs.extend(settings.certificates.iter().map(|pair| files(&pair.certificate_file, &pair.private_key_file)));
    let wardrobe =
        Wardrobe::open(&pairs).context("[edge] a certificate_file and its private_key_file cannot be used")?;
    Ok(if is_awaited { wardrobe.awaiting(Acme::files(&config.acme.folder)) } else { wardrobe })
}

fn files(certificate: &Path, private_key: &Path) -> CertificateFiles {
    CertificateFiles { certificate: certificate.into(), private_key: private_key.into() }
}

/// Watches the files by polling, which sees a turned link, a network file system and a container's volume alike.
pub(crate) struct CertificateWatch {
    interval: Duration,
    reloads: Outcomes,
}

impl CertificateWatch {
    pub(crate) fn register(registry: &mut Registry, interval: Duration) -> Self {
        let reloads = Outcomes::register(
            registry,
            "certificate_reloads",
            "Certificates that changed, by what became of them",
            [REPLACED, REFUSED],
        );
        Self { interval: interval.max(INTERVAL_MIN), reloads }
    }

    /// Watches until the drain starts.
    pub(crate) async fn run(self, wardrobe: Arc<Wardrobe>, drain: Drain) {
        let mut tick = tokio::time::interval(self.interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => self.look(&wardrobe).await,
                () = drain.started() => return,
            }
        }
    }

    async fn look(&self, wardrobe: &Arc<Wardrobe>) {
        let wardrobe = Arc::clone(wardrobe);
        // A file system that does not answer must not hold up the threads that do.
        let Ok(change) = tokio::task::spawn_blocking(move || wardrobe.refresh()).await else {
            tracing::error!("looking at the certificates panicked");
            return;
        };
        for files in &change.replaced {
            tracing::info!(file = %files.certificate.display(), "a certificate was replaced");
            self.reloads.count(REPLACED);
        }
        for reason in &change.refused {
            let reason = reason as &dyn std::error::Error;
            tracing::warn!(reason, "a certificate was refused; the one before it stays");
            self.reloads.count(REFUSED);
        }
    }
}
