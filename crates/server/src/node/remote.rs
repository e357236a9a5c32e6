//! A remote node: it has neither PostgreSQL nor Redis, and asks home instead.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ipseity_api::{Backend, UsageBuffer};
use ipseity_edge::Drain;
use ipseity_home::{HomeClient, HomeClientOptions};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

use crate::config::{Config, millis};
use crate::node::background::probe_interval;
use crate::node::readiness::Dependencies;
use crate::node::{NodeParts, Serving, build_public_service, home_listener, open_api, portal_setup};
use crate::tasks::acme;
use crate::tasks::periodic::run_every;
use crate::tasks::recovery::RecoveryWorker;
use crate::telemetry::log::LogControl;

pub(super) async fn run(config: &Config, mut parts: NodeParts, log_control: Arc<LogControl>) -> Result<()> {
    let home = Arc::new(open_client(config)?);
    parts.registry().register_collector(Box::new(HomeCollector(Arc::clone(&home))));
    let usage_buffer = Arc::new(UsageBuffer::new(config.ledger.usage_buffer_keys_max));
    let api = open_api(config, Backend::Home(Arc::clone(&home)), &parts, &usage_buffer);
    let acme = acme::http01_router(parts.acme.as_ref());
    let pages = config.portal.enabled.then(|| portal_setup::public_pages(config, parts.page_sources())).transpose()?;
    let public_service = build_public_service(config, &api, acme, pages);
    let dependencies = Dependencies::Home(Arc::clone(&home));
    let mut serving = Serving::start(config, parts, public_service, Arc::clone(&api), dependencies, log_control)?;
    let admission = Arc::clone(api.admission());
    let connection = tokio::spawn(async move { home.run(|notice| admission.apply_notice(notice)).await });
    let recovery = RecoveryWorker { api: Arc::clone(&api), charge_gate: None, interval: probe_interval(config) };
    let drain = serving.drain.clone();
    tokio::join!(
        serving.drain_after_signal(config),
        recovery.run(drain.clone()),
        report_refusals(&api, millis(config.ledger.usage_flush_interval_ms), drain)
    );
    recovery.reconcile_before_exit().await;
    api.admission().report_refusals().await;
    serving.join_tasks().await?;
    connection.abort();
    serving.stop().await
}

async fn report_refusals(api: &ipseity_api::Api, interval: Duration, drain: Drain) {
    run_every(interval, &drain, || api.admission().report_refusals()).await;
}

pub(crate) fn open_client(config: &Config) -> Result<HomeClient> {
    let settings = &config.home;
    let urls =
        settings.urls.iter().map(|url| url.parse().with_context(|| format!("invalid URL in [home] urls: {url}")));
    let options = HomeClientOptions {
        urls: urls.collect::<Result<_>>()?,
        identity: home_listener::identity(settings),
        ca_file: settings.ca_file.clone(),
        timeout: millis(settings.timeout_ms),
        ping_interval: millis(settings.ping_interval_ms),
        is_optimistic: settings.optimistic,
        silence_timeout: millis(settings.silence_timeout_ms),
    };
    HomeClient::new(options).context("invalid [home] certificate_file, private_key_file or ca_file")
}

/// Whether there is a connection to home.
struct HomeCollector(Arc<HomeClient>);

impl std::fmt::Debug for HomeCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HomeCollector")
    }
}

impl Collector for HomeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let connected = ConstGauge::new(i64::from(self.0.is_connected()));
        let help = "Whether this remote node has a connection to home";
        connected.encode(encoder.encode_descriptor("home_connected", help, None, connected.metric_type())?)
    }
}
