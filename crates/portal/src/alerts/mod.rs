//! Sends alerts to webhooks and Slack. The outbox is in PostgreSQL, so alerts survive a crash, and any node sends them.

pub(crate) mod client;
pub(crate) mod destination;
pub(crate) mod message;
pub(crate) mod pages;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use ipseity_domain::causes;
use ipseity_store::{AlertClaim, AlertTarget, QueuedAlert, Store, StoreError, WakeListener};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::task::{self, JoinError, JoinSet};

use client::ChannelClient;
use destination::DestinationPolicy;

/// How often the outbox is polled without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Limits of channels and of requests to them.
#[derive(Clone, Debug)]
pub struct AlertOptions {
    /// Networks that are allowed although they are not public. Only they can be reached over plain HTTP.
    pub allowed_networks: Vec<IpNet>,
    /// Maximum number of webhooks and Slack channels per account.
    pub channels_per_account_max: u32,
    /// Maximum number of concurrent requests.
    pub requests_max: usize,
    /// Maximum number of concurrent requests per channel.
    pub requests_per_channel_max: usize,
    /// Maximum number of concurrent requests for all channels of an account.
    pub requests_per_account_max: usize,
    /// Timeout for a request.
    pub timeout: Duration,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DeliveryLabels {
    channel: &'static str,
    outcome: &'static str,
}

/// An attempt that has not ended.
struct RunningAttempt {
    channel_id: i64,
    is_retry: bool,
}

/// Sends alerts to channels, until it is dropped.
pub(crate) struct AlertDispatcher {
    client: ChannelClient,
    options: AlertOptions,
    base_url: String,
    delivery_counts: Family<DeliveryLabels, Counter>,
}

impl AlertDispatcher {
    pub(crate) fn open(
        options: &AlertOptions,
        base_url: &str,
        registry: &mut Registry,
    ) -> Result<Self, reqwest::Error> {
        let delivery_counts = Family::<DeliveryLabels, Counter>::default();
        for channel in ["webhook", "slack"] {
            for outcome in ["delivered", "failed"] {
                drop(delivery_counts.get_or_create(&DeliveryLabels { channel, outcome }));
            }
        }
        registry.register(
            "alert_deliveries",
            "Attempts to deliver alerts to channels, by kind of channel and outcome",
            delivery_counts.clone(),
        );
        let policy = DestinationPolicy::new(&options.allowed_networks);
        Ok(Self {
            client: ChannelClient::open(&policy, options.timeout)?,
            options: options.clone(),
            base_url: base_url.to_owned(),
            delivery_counts,
        })
    }

    /// Attempts that end with the process are made again by any node, when their claim has ended.
    pub(crate) async fn run(self: &Arc<Self>, store: &Store) {
        let mut listener: Option<WakeListener> = None;
        // Each attempt is a task: one that is not polled would keep the connection to PostgreSQL that a claim waits for.
        let mut attempts = JoinSet::new();
        let mut running: HashMap<task::Id, RunningAttempt> = HashMap::new();
        loop {
            match self.claim(store, &running).await {
                Ok(claimed) => {
                    for alert in claimed {
                        let (channel_id, is_retry) = (alert.channel_id, alert.attempt > 1);
                        let attempt = Arc::clone(self).attempt(store.clone(), alert);
                        running.insert(attempts.spawn(attempt).id(), RunningAttempt { channel_id, is_retry });
                    }
                }
                Err(error) => tracing::warn!(error = %causes(&error), "alert queue unavailable"),
            }
            // Not within the wait, which the end of an attempt cancels.
            if listener.is_none() {
                listener = store.email_queue().listen().await.ok();
            }
            tokio::select! {
                Some(ended) = attempts.join_next_with_id() => drop(running.remove(&task_id(ended))),
                () = wait_for_alerts(&mut listener) => {}
            }
            while let Some(ended) = attempts.try_join_next_with_id() {
                running.remove(&task_id(ended));
            }
        }
    }

    async fn claim(
        &self,
        store: &Store,
        running: &HashMap<task::Id, RunningAttempt>,
    ) -> Result<Vec<QueuedAlert>, StoreError> {
        let count_max = self.options.requests_max.saturating_sub(running.len());
        if count_max == 0 {
            return Ok(Vec::new());
        }
        let mut busy: HashMap<i64, usize> = HashMap::new();
        for attempt in running.values() {
            *busy.entry(attempt.channel_id).or_default() += 1;
        }
        let retries = running.values().filter(|attempt| attempt.is_retry).count();
        let busy: Vec<_> = busy.into_iter().collect();
        let claim = AlertClaim::Channels {
            count_max,
            // Receivers that hang leave the other half to alerts that were not attempted yet.
            retries_max: self.options.requests_max.div_ceil(2).saturating_sub(retries),
            per_channel_max: self.options.requests_per_channel_max,
            per_account_max: self.options.requests_per_account_max,
            attempt_max: self.options.timeout,
            busy: &busy,
        };
        store.alert_queue().claim(claim).await
    }

    /// Makes an attempt and stores its outcome.
    async fn attempt(self: Arc<Self>, store: Store, alert: QueuedAlert) {
        if let Some(attempt) = self.client.send(&alert, &self.base_url).await {
            let channel = if matches!(alert.target, AlertTarget::Slack { .. }) { "slack" } else { "webhook" };
            let outcome = if attempt.is_delivered { "delivered" } else { "failed" };
            self.delivery_counts.get_or_create(&DeliveryLabels { channel, outcome }).inc();
            let queue = store.alert_queue();
            let stored = if attempt.is_delivered {
                queue.mark_sent(alert.id, &attempt.outcome).await
            } else if let (true, Some(url)) = (attempt.is_gone, alert.target.url()) {
                queue.mark_gone(&alert, url, &attempt.outcome).await
            } else {
                let delay_min = attempt.retry_after.unwrap_or_default();
                queue.mark_attempt_failed(&alert, &attempt.outcome, delay_min).await.map(drop)
            };
            if let Err(error) = stored {
                tracing::warn!(error = %causes(&error), "outcome of an alert not stored; it is sent again");
            }
        }
    }
}

fn task_id(ended: Result<(task::Id, ()), JoinError>) -> task::Id {
    ended.map_or_else(|panicked| panicked.id(), |(id, ())| id)
}

/// Waits for a notification, or a while.
async fn wait_for_alerts(listener: &mut Option<WakeListener>) {
    match listener {
        Some(connected) => {
            if connected.wait(POLL_INTERVAL).await.is_err() {
                *listener = None;
            }
        }
        None => tokio::time::sleep(POLL_INTERVAL).await,
    }
}
