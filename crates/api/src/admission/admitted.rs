//! [`Admitted`], the proof that a request was charged.
//!
//! Private constructors guarantee that no lookup is rendered without a charge:
//!
//! 1. Only this module creates an [`Issued`] verdict, and only by charging the ledger or the local limiter. The local
//!    limiter records what it admits as a pending charge, or the charge is in flight ([`optimistic`]).
//!
//! [`optimistic`]: crate::admission::optimistic
//! 2. Only this module creates an [`Admitted`], and only from an [`Issued`] verdict that admits.
//! 3. The renderer takes an [`Admitted`] by value. It is neither `Clone` nor `Copy`, so one charge gives one
//!    response.

use std::time::Instant;

use futures_util::TryFutureExt;
use ipseity_domain::{ApiKey, DailyUsage, FieldSet};
use ipseity_home::HomeClient;
use ipseity_ledger::{
    AppliedRestrictions, DemoVerdict, Ledger, LedgerError, LedgerTime, PendingCharge, Quota, SentCharge, Verdict,
};

use crate::admission::backend::{Backend, FailedCharge, charge_demo_at_home};
use crate::admission::degraded::DegradedMode;
use crate::admission::key_request::KeyRequest;
use crate::admission::open_keys::AdmittedEarly;
use crate::response::rate_limit_headers::{BurstLeft, BurstUse};

/// Proof that a request was charged, with what its response may contain.
pub(crate) struct Admitted {
    field_set: FieldSet,
    quota: Quota,
    burst: Option<BurstUse>,
}

impl Admitted {
    /// Narrows the field set to a scope. A wider scope or any other value changes nothing.
    pub(crate) fn narrowed_to(mut self, requested_scope: Option<&str>) -> Self {
        if let FieldSet::Scope(scope) = self.field_set {
            self.field_set = FieldSet::Scope(scope.narrowed_to(requested_scope));
        }
        self
    }

    /// Hides what is left of the burst limit, but not the limit.
    pub(crate) fn without_burst_left(self) -> Self {
        Self { burst: Some(BurstUse { limit: self.quota.burst_limit, left: None }), ..self }
    }

    /// Consumes the proof. Returns the fields that the response contains, and the quota and the burst limit that it reports.
    pub(crate) const fn into_parts(self) -> (FieldSet, Quota, Option<BurstUse>) {
        (self.field_set, self.quota, self.burst)
    }
}

/// A verdict that came from the ledger or the local limiter.
pub(super) struct Issued<V> {
    verdict: V,
    /// What is left of the burst limit after the request, if the local limiter knows it.
    burst_left: Option<BurstLeft>,
}

impl<V> Issued<V> {
    const fn new(verdict: V) -> Self {
        Self { verdict, burst_left: None }
    }

    pub(super) const fn verdict(&self) -> &V {
        &self.verdict
    }
}

impl Issued<Verdict> {
    /// Charges a request in the ledger, or at home.
    pub(super) fn charge(backend: &Backend, request: &KeyRequest) -> impl Future<Output = Result<Self, FailedCharge>> {
        backend.charge(request).map_ok(Self::new)
    }

    /// Reports the ledger's verdict to the local limiter. If the limits are exceeded by what this node knows, its
    /// refusal replaces the verdict. See [`DegradedMode::observe`].
    pub(super) fn restrict_by(self, degraded: &DegradedMode, request: &KeyRequest, received_at: Instant) -> Self {
        // What a remote node knows of its requests, it applies itself.
        let Some(arrived_at) = request.arrived_here_at() else { return self };
        let burst_window_ms = request.owner.burst_window_ms();
        match degraded.observe(request, &self.verdict, arrived_at, received_at, burst_window_ms) {
            Ok(burst_left) => Self { burst_left, ..self },
            Err(verdict) => Self::new(verdict),
        }
    }

    /// Charges a request to the local limiter. See [`DegradedMode::check_request`].
    pub(super) fn charge_locally(
        degraded: &DegradedMode,
        key: &ApiKey,
        charge: PendingCharge,
        now: LedgerTime,
        sent: Option<SentCharge>,
        burst_window_ms: u64,
        applied: AppliedRestrictions,
    ) -> Option<Self> {
        let decision = degraded.check_request(key, charge, now, sent, burst_window_ms, applied);
        decision.map(|(verdict, burst_left)| Self { verdict, burst_left: Some(burst_left) })
    }

    /// Admits a request of an open key, whose charge is in flight. See [`DegradedMode::admit_before_charge`].
    pub(super) fn admit_before_charge(
        degraded: &DegradedMode,
        request: &KeyRequest,
        early: &AdmittedEarly,
    ) -> Option<Self> {
        let (arrival, now) = (request.arrival_at_owner(), request.owner.now());
        let burst_window_ms = request.owner.burst_window_ms();
        let decision = degraded.admit_before_charge(request.key.id, arrival, now, early, burst_window_ms);
        decision.map(|(verdict, burst_left)| Self { verdict, burst_left: Some(burst_left) })
    }

    /// The proof, if the verdict admits the request.
    pub(super) fn into_admitted(self) -> Option<Admitted> {
        let Verdict::Admitted { scope, quota, .. } = self.verdict else { return None };
        let burst = BurstUse { limit: quota.burst_limit, left: self.burst_left };
        Some(Admitted { field_set: FieldSet::Scope(scope), quota, burst: Some(burst) })
    }
}

impl Issued<DemoVerdict> {
    /// Charges a demo request at home.
    pub(super) async fn charge_demo_at_home(home: &HomeClient) -> Option<Self> {
        charge_demo_at_home(home).await.map(Self::new)
    }

    /// Charges a demo request in the ledger.
    pub(super) async fn charge_demo(ledger: &Ledger, limit: u64) -> Result<Self, LedgerError> {
        ledger.charge_demo(limit).await.map(Self::new)
    }

    /// Charges a demo request in a ledger that has lost its count.
    pub(super) async fn charge_demo_with_stored_usage(
        ledger: &Ledger,
        limit: u64,
        stored_usage: Option<DailyUsage>,
    ) -> Result<Self, LedgerError> {
        ledger.charge_demo_with_stored_usage(limit, stored_usage).await.map(Self::new)
    }

    /// Charges a demo request to the local count.
    pub(super) fn charge_demo_locally(degraded: &DegradedMode, now: LedgerTime, limit: u64) -> Self {
        Self::new(degraded.demo_quota.check(now, limit))
    }

    /// The proof, if the verdict admits the request.
    pub(super) fn into_admitted(self) -> Option<Admitted> {
        let DemoVerdict::Admitted { quota, .. } = self.verdict else { return None };
        Some(Admitted { field_set: FieldSet::Demo, quota, burst: None })
    }
}

#[cfg(test)]
impl Admitted {
    /// The proof of a demo request that a fresh local limiter was charged for.
    pub(crate) fn for_test() -> Self {
        let degraded = DegradedMode::for_test();
        Issued::charge_demo_locally(&degraded, LedgerTime(0), 1_000).into_admitted().expect("unused demo quota")
    }
}

#[cfg(test)]
mod tests {
    use ipseity_domain::{ApiKey, BURST_LIMIT, KeyFlags, KeyRecord, PlaintextKey, Scope};
    use ipseity_ledger::ChargeId;

    use super::*;

    /// A local limiter that knows one key, with a daily limit.
    fn limiter_with_key(daily_limit: u64) -> (DegradedMode, ApiKey) {
        let (degraded, key) = (DegradedMode::for_test(), PlaintextKey::generate(|| fastrand::u8(..)).to_api_key());
        let record = KeyRecord {
            id: key.id,
            digest: key.digest,
            previous: None,
            scope: Scope::Geo,
            daily_limit,
            burst_limit: BURST_LIMIT,
            restrictions: None,
            flags: KeyFlags::default(),
            generation: 1,
            burst_epoch: 1,
            usage: None,
            previous_usage: None,
        };
        degraded.update_record(&record, degraded.begin_lookup(key.id));
        (degraded, key)
    }

    fn charge_locally(degraded: &DegradedMode, key: &ApiKey) -> Issued<Verdict> {
        let charge = PendingCharge { at: LedgerTime(0), id: ChargeId::next() };
        let applied = AppliedRestrictions::default();
        Issued::charge_locally(degraded, key, charge, LedgerTime(0), None, 60_000, applied).expect("local verdict")
    }

    #[test]
    fn every_locally_admitted_request_is_a_pending_charge() {
        let (degraded, key) = limiter_with_key(2);
        let charge = || charge_locally(&degraded, &key);
        for used in [1, 2] {
            let admitted = charge().into_admitted().expect("request within the quota");
            assert_eq!((admitted.quota.used, degraded.pending_charges.total_requests()), (used, used));
        }
        let exhausted = charge();
        assert!(matches!(exhausted.verdict(), Verdict::QuotaExhausted { .. }));
        assert!(exhausted.into_admitted().is_none());
        assert_eq!(degraded.pending_charges.total_requests(), 2);
    }

    #[test]
    fn requested_scope_only_narrows_the_field_set() {
        for (requested, expected) in [(None, Scope::Geo), (Some("ip"), Scope::Ip), (Some("full"), Scope::Geo)] {
            let (degraded, key) = limiter_with_key(1);
            let admitted = charge_locally(&degraded, &key).into_admitted().expect("request within the quota");
            assert_eq!(admitted.narrowed_to(requested).into_parts().0, FieldSet::Scope(expected));
        }
        assert_eq!(Admitted::for_test().narrowed_to(Some("ip")).into_parts().0, FieldSet::Demo);
    }
}
