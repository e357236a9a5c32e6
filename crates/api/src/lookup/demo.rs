//! GET /api/v1/ip/demo: a fixed set of fields, no key, one quota for all anonymous callers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use ipseity_domain::{Client, DailyUsage, FieldSet};
use ipseity_ledger::{DemoVerdict, LedgerTime, Quota};

use crate::Api;
use crate::error::Refusal;
use crate::operation::Operation;

pub(crate) async fn demo_handler(State(api): State<Arc<Api>>, Extension(client): Extension<Client>) -> Response {
    let result = async {
        let quota = api.admit_demo().await?;
        Ok(api.render_lookup(&client, FieldSet::Demo, &quota))
    };
    api.finish_response(Operation::Demo.label(), result.await)
}

impl Api {
    async fn admit_demo(&self) -> Result<Quota, Refusal> {
        if let Some(quota) = self.demo_refusal_cache.get() {
            self.usage_buffer.record_demo_refused(quota.day);
            return Err(Refusal::DemoExhausted(quota));
        }
        let Some(verdict) = self.charge_demo().await else { return self.admit_demo_degraded().await };
        match verdict {
            DemoVerdict::Admitted { quota, yesterday } => {
                let usage = DailyUsage { day: quota.day, count: quota.used };
                self.degraded.demo_quota.merge_usage(usage);
                self.usage_buffer.record_demo_admitted(usage);
                if let Some(yesterday) = yesterday {
                    self.usage_buffer.record_demo_admitted(yesterday);
                }
                Ok(quota)
            }
            DemoVerdict::Exhausted(quota) => {
                self.degraded.demo_quota.merge_usage(DailyUsage { day: quota.day, count: quota.used });
                Err(self.record_demo_refusal(quota))
            }
            DemoVerdict::Unknown => Err(Refusal::Internal),
        }
    }

    pub(crate) fn record_demo_refusal(&self, quota: Quota) -> Refusal {
        self.demo_refusal_cache.set(quota);
        self.usage_buffer.record_demo_refused(quota.day);
        Refusal::DemoExhausted(quota)
    }

    /// `None` when the stores do not answer.
    async fn charge_demo(&self) -> Option<DemoVerdict> {
        if self.degraded.breaker.is_open() {
            return None;
        }
        let verdict = match self.ledger.charge_demo().await {
            Ok(DemoVerdict::Unknown) => {
                let flushed_usage = self.find_demo_usage().await?;
                self.ledger.charge_demo_with_stored_usage(flushed_usage).await
            }
            verdict => verdict,
        };
        verdict
            .inspect(|_| self.degraded.breaker.record_success())
            .map_err(|error| self.note_ledger_failure(&error))
            .ok()
    }
}

/// A spent demo quota stays spent until midnight: further callers cost the counter store nothing.
#[derive(Default)]
pub(crate) struct DemoRefusalCache(Mutex<Option<(Instant, Quota)>>);

impl DemoRefusalCache {
    fn set(&self, quota: Quota) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), quota));
    }

    /// The verdict as the counter store would give it now; `None` when midnight may have passed.
    fn get(&self) -> Option<Quota> {
        let (cached_at, quota) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let elapsed = cached_at.elapsed();
        (elapsed < Duration::from_secs(quota.retry_after_s().saturating_sub(1))).then(|| {
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            Quota { now: LedgerTime(quota.now.0.saturating_add(elapsed_ms)), ..quota }
        })
    }
}
