//! Orders and renews certificates from an ACME server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use ipseity_domain::causes;
use ipseity_edge::{AcmeChallenge, AcmeClient, AcmeOptions, CertResolver, Drain, Http01Tokens};
use prometheus_client::registry::Registry;
use tokio::time::sleep;

use crate::config::{self, Config};
use crate::tasks::outcome_counter::{FAILED, OutcomeCounter};

/// ACME servers block clients that fail too often: Let's Encrypt after five failures an hour.
const RETRY_DELAY: Duration = Duration::from_secs(300);
const CHECK_INTERVAL_MIN: Duration = Duration::from_secs(1);

const ISSUED: &str = "issued";

pub(crate) struct AcmeWorker {
    acme: AcmeClient,
    tokens: Http01Tokens,
    interval: Duration,
    outcomes: OutcomeCounter,
}

/// The options of `[acme]`; `None` if it has no domains.
pub(crate) fn acme_options(settings: &config::AcmeConfig) -> Result<Option<AcmeOptions>> {
    if settings.domains.is_empty() {
        return Ok(None);
    }
    let challenge = AcmeChallenge::parse(&settings.challenge).with_context(|| {
        format!("[acme] challenge is {:?}. Use \"tls-alpn-01\" or \"http-01\".", settings.challenge)
    })?;
    ensure!(
        settings.accept_terms,
        "[acme] accept_terms is false. Read the terms of service of the ACME server, then set it to true."
    );
    ensure!(settings.directory_url.starts_with("https://"), "[acme] directory_url must start with https://");
    ensure!(
        settings.domains.iter().all(|name| !name.contains('*')),
        "[acme] domains contains a wildcard, which neither challenge supports. List each host."
    );
    Ok(Some(AcmeOptions {
        directory_url: settings.directory_url.clone(),
        contact: settings.contact.clone(),
        names: settings.domains.iter().map(|name| name.to_ascii_lowercase()).collect(),
        challenge,
        dir: settings.dir.clone(),
        ca_file: Some(settings.ca_file.clone()).filter(|file| !file.as_os_str().is_empty()),
        renew_before: Some(Duration::from_secs(settings.renew_before_h.saturating_mul(3600)))
            .filter(|before| !before.is_zero()),
    }))
}

/// Serves HTTP-01 challenges; no route without `[acme]`.
pub(crate) fn http01_router(worker: Option<&AcmeWorker>) -> Router {
    let Some(worker) = worker else { return Router::new() };
    let tokens = worker.tokens.clone();
    let handler =
        async move |Path(token): Path<String>| tokens.key_authorization(&token).ok_or(http::StatusCode::NOT_FOUND);
    Router::new().route("/.well-known/acme-challenge/{token}", get(handler))
}

impl AcmeWorker {
    pub(crate) fn open(
        config: &Config,
        cert_resolver: Option<&Arc<CertResolver>>,
        registry: &mut Registry,
    ) -> Result<Option<Self>> {
        let Some(options) = acme_options(&config.acme)? else { return Ok(None) };
        let cert_resolver =
            cert_resolver.context("[acme] domains is set, but [edge] https is empty. Add an address to https.")?;
        let outcomes =
            OutcomeCounter::register(registry, "acme_orders", "ACME certificate orders, by outcome", [ISSUED, FAILED]);
        let tokens = Http01Tokens::default();
        let interval = Duration::from_secs(config.acme.check_interval_s).max(CHECK_INTERVAL_MIN);
        Ok(Some(Self {
            acme: AcmeClient::new(options, Arc::clone(cert_resolver), tokens.clone()),
            tokens,
            interval,
            outcomes,
        }))
    }

    /// Orders a certificate whenever a renewal is due, until the drain starts.
    pub(crate) async fn run(self, drain: Drain) {
        let mut failures = 0;
        loop {
            let check = async {
                if !self.acme.is_renewal_due() {
                    return self.interval;
                }
                match self.acme.issue_certificate().await {
                    Ok(()) => {
                        tracing::info!("certificate issued");
                        self.outcomes.inc(ISSUED);
                        failures = 0;
                        self.interval
                    }
                    Err(error) => {
                        tracing::warn!(error = %causes(&error), "certificate order failed");
                        self.outcomes.inc(FAILED);
                        failures += 1;
                        self.interval.min(RETRY_DELAY.saturating_mul(failures))
                    }
                }
            };
            let check_and_wait = async { sleep(check.await).await };
            tokio::select! {
                () = check_and_wait => {}
                () = drain.started() => return,
            }
        }
    }
}
