//! Certificates from an authority: asked for when they are due, until the drain.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use edge::{Acme, AcmeOptions, Challenge, Drain, HttpTokens, Wardrobe};
use prometheus_client::registry::Registry;
use tokio::time::sleep;

use crate::config::{self, Config};
use crate::outcome::Outcomes;

/// Authorities count failures and shut out whoever fails too often: five an hour at the best known one.
const RETRY_MIN: Duration = Duration::from_secs(300);
const INTERVAL_MIN: Duration = Duration::from_secs(1);

const ISSUED: &str = "issued";
const FAILED: &str = "failed";

pub(crate) struct Renewal {
    acme: Acme,
    tokens: HttpTokens,
    interval: Duration,
    outcomes: Outcomes,
}

/// What the settings ask of an authority; `None` if nothing.
pub(crate) fn options(settings: &config::Acme) -> Result<Option<AcmeOptions>> {
    if settings.names.is_empty() {
        return Ok(None);
    }
    let challenge = Challenge::parse(&settings.challenge)
        .with_context(|| format!("[acme] challenge is {:?}; use \"tls-alpn-01\" or \"http-01\"", settings.challenge))?;
    ensure!(settings.terms_agreed, "[acme] terms_agreed is false; read the authority's terms of service, then set it");
    ensure!(settings.directory_url.starts_with("https://"), "[acme] directory_url begins with https://");
    ensure!(
        settings.names.iter().all(|name| !name.contains('*')),
        "[acme] names holds a wildcard, which neither challenge can prove; name each host"
    );
    Ok(Some(AcmeOptions {
        directory_url: settings.directory_url.clone(),
        contact: settings.contact.clone(),
        names: settings.names.iter().map(|name| name.to_ascii_lowercase()).collect(),
        challenge,
        folder: settings.folder.clone(),
        ca_file: Some(settings.ca_file.clone()).filter(|file| !file.as_os_str().is_empty()),
        renew_before: Some(Duration::from_secs(settings.renew_before_h.saturating_mul(3600)))
            .filter(|before| !before.is_zero()),
    }))
}

/// Answers an authority's HTTP-01 questions; no route at all where none is asked for.
pub(crate) fn router(renewal: Option<&Renewal>) -> Router {
    let Some(renewal) = renewal else { return Router::new() };
    let tokens = renewal.tokens.clone();
    let answer = async move |Path(token): Path<String>| tokens.find(&token).ok_or(http::StatusCode::NOT_FOUND);
    Router::new().route("/.well-known/acme-challenge/{token}", get(answer))
}

impl Renewal {
    pub(crate) fn open(
        config: &Config,
        wardrobe: Option<&Arc<Wardrobe>>,
        registry: &mut Registry,
    ) -> Result<Option<Self>> {
        let Some(options) = options(&config.acme)? else { return Ok(None) };
        let wardrobe = wardrobe.context("[acme] names is set, but [edge] https is empty; name an address there")?;
        let outcomes = Outcomes::register(
            registry,
            "acme_orders",
            "Certificates asked for, by what became of it",
            [ISSUED, FAILED],
        );
        let tokens = HttpTokens::default();
        let interval = Duration::from_secs(config.acme.check_interval_s).max(INTERVAL_MIN);
        Ok(Some(Self { acme: Acme::new(options, Arc::clone(wardrobe), tokens.clone()), tokens, interval, outcomes }))
    }

    /// Asks when it is due, until the drain starts.
    pub(crate) async fn run(self, drain: Drain) {
        let mut failures = 0;
        loop {
            let look = async {
                if !self.acme.is_due() {
                    return self.interval;
                }
                match self.acme.issue().await {
                    Ok(()) => {
                        tracing::info!("a certificate was issued");
                        self.outcomes.count(ISSUED);
                        failures = 0;
                        self.interval
                    }
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "no certificate was issued; the one before stays");
                        self.outcomes.count(FAILED);
                        failures += 1;
                        self.interval.min(RETRY_MIN.saturating_mul(failures))
                    }
                }
            };
            let turn = async { sleep(look.await).await };
            tokio::select! {
                () = turn => {}
                () = drain.started() => return,
            }
        }
    }
}
