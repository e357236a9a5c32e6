//! Admission of demo requests: no key, no burst limit, one daily quota for all callers, and a share of it per network.

use ipseity_domain::{Address, BURST_LIMIT, DailyUsage, UtcDay};
use ipseity_home::message::{Reply, Request};
use ipseity_ledger::{DemoVerdict, Quota};

use crate::admission::Admission;
use crate::admission::admitted::{Admitted, Issued};
use crate::admission::backend::Backend;
use crate::error::Refusal;

impl Admission {
    /// Charges a demo request, unless the client's network has used its share of the quota.
    pub(crate) async fn admit_demo(&self, client: Address) -> Result<Admitted, Refusal> {
        if let Some(quota) = self.demo_refusal_cache.get() {
            self.usage_buffer.record_demo_refused(quota.day);
            return Err(Refusal::DemoExhausted(quota));
        }
        let now = self.backend.owner_of_demo().now();
        let day = now.day();
        self.demo_shares.take(client, day).map_err(|limit| {
            self.usage_buffer.record_demo_refused(day);
            Refusal::DemoShareUsed(Quota { now, limit, day, used: limit, burst_limit: BURST_LIMIT })
        })?;
        let admitted = self.admit_demo_to_quota().await;
        if admitted.is_err() {
            self.demo_shares.give_back(client, day);
        }
        admitted
    }

    async fn admit_demo_to_quota(&self) -> Result<Admitted, Refusal> {
        let Some(verdict) = self.charge_demo().await else { return self.admit_demo_degraded().await };
        self.observe_demo_verdict(verdict.verdict());
        self.apply_demo_verdict(verdict)
    }

    /// Keeps the count of a verdict for degraded mode and for the usage flush.
    pub(super) fn observe_demo_verdict(&self, verdict: &DemoVerdict) {
        if let DemoVerdict::Admitted { quota, yesterday } = verdict {
            let usage = DailyUsage { day: quota.day, count: quota.used };
            self.degraded.demo_quota.merge_usage(usage);
            self.usage_buffer.record_demo_admitted(usage);
            if let Some(yesterday) = yesterday {
                self.usage_buffer.record_demo_admitted(*yesterday);
            }
        } else if let DemoVerdict::Exhausted(quota) = verdict {
            self.degraded.demo_quota.merge_usage(DailyUsage { day: quota.day, count: quota.used });
        }
    }

    async fn admit_demo_degraded(&self) -> Result<Admitted, Refusal> {
        self.metrics.count_degraded_decision();
        let now = self.backend.owner_of_demo().now();
        if !self.degraded.demo_quota.has_usage() {
            let Some(usage) = self.find_demo_usage().await else { return Err(Refusal::Internal) };
            let zero_usage = DailyUsage { day: now.day(), count: 0 };
            self.degraded.demo_quota.merge_usage(usage.unwrap_or(zero_usage));
        }
        self.apply_demo_verdict(Issued::charge_demo_locally(&self.degraded, now, self.demo_daily_limit))
    }

    fn apply_demo_verdict(&self, verdict: Issued<DemoVerdict>) -> Result<Admitted, Refusal> {
        if let DemoVerdict::Exhausted(quota) = *verdict.verdict() {
            self.demo_refusal_cache.set(quota);
            self.usage_buffer.record_demo_refused(quota.day);
            return Err(Refusal::DemoExhausted(quota));
        }
        verdict.into_admitted().ok_or(Refusal::Internal)
    }

    /// The verdict; `None` if Redis or home does not answer, or Redis has lost the count and PostgreSQL does not answer.
    pub(super) async fn charge_demo(&self) -> Option<Issued<DemoVerdict>> {
        let owner = self.backend.owner_of_demo();
        if !self.may_charge(&owner) {
            return None;
        }
        let stores = match &self.backend {
            Backend::Stores(stores) => stores,
            Backend::Home(home) => return Issued::charge_demo_at_home(home).await,
        };
        let verdict = match Issued::charge_demo(&stores.ledger, self.demo_daily_limit).await {
            Ok(verdict) if *verdict.verdict() == DemoVerdict::Unknown => {
                let flushed_usage = self.find_demo_usage().await?;
                Issued::charge_demo_with_stored_usage(&stores.ledger, self.demo_daily_limit, flushed_usage).await
            }
            verdict => verdict,
        };
        verdict.inspect(|_| owner.record_success()).map_err(|error| self.note_ledger_failure(&owner, &error)).ok()
    }

    /// The demo's count in PostgreSQL; `None` if it does not answer in time.
    pub(super) async fn find_demo_usage(&self) -> Option<Option<DailyUsage>> {
        match &self.backend {
            Backend::Stores(stores) => {
                let query = stores.store.usage().find_demo_usage();
                self.query_store(self.degraded.demo_quota.has_usage(), query).await
            }
            Backend::Home(home) => match home.call(Request::FindDemoUsage, home.owner().now()).await {
                Ok(Reply::DemoUsage(usage)) => Some(usage.map(|(day, count)| DailyUsage { day: UtcDay(day), count })),
                Ok(_) | Err(_) => None,
            },
        }
    }
}
