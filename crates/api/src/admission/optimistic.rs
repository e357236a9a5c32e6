//! Optimistic admission: a remote node admits a request before home has charged it, if home has opened the key for the
//! node. The charge is sent immediately.
//!
//! A key can exceed a limit by at most [`IN_FLIGHT_MAX`](ipseity_domain::IN_FLIGHT_MAX) requests for each node that it is
//! open for, once: the first verdict that does not admit closes the key.

use std::sync::Arc;
use std::time::Instant;

use ipseity_domain::is_mutant;
use ipseity_home::{HomeClient, KeyNotice};
use ipseity_ledger::{PendingCharge, UnconfirmedCharge, Verdict};

use crate::admission::Admission;
use crate::admission::admitted::{Admitted, Issued};
use crate::admission::backend::{Backend, BackendError, FailedCharge, charge_at_home};
use crate::admission::key_request::KeyRequest;
use crate::admission::open_keys::{AdmittedEarly, ChargeInFlight, OpenedKey, WaitReason};

impl Admission {
    /// Closes what home has closed, and trusts no restrictions that its database may have lost.
    pub fn apply_notice(&self, notice: KeyNotice) {
        match notice {
            KeyNotice::Closed(_) if is_mutant("notices-ignored") => {}
            KeyNotice::Closed(id) => self.open_keys.close(id),
            KeyNotice::AllClosed => self.open_keys.close_all(),
            KeyNotice::DatabaseChanged => self.degraded.set_subscribed(true),
        }
    }

    /// Admits a request, if home has opened its key for this node. Its charge is then in flight.
    pub(super) fn admit_before_charge(self: &Arc<Self>, request: &KeyRequest) -> Option<Admitted> {
        let Backend::Home(home) = &self.backend else { return None };
        if !home.is_optimistic() {
            return None;
        }
        if !home.is_fresh() || !self.may_charge(&request.owner) {
            self.metrics.count_wait("stale");
            return None;
        }
        // Home decides about what is refused here: the restrictions may have changed.
        if request.applied.is_refused || request.restricted.has_expired(request.owner.now()) {
            self.metrics.count_wait("restricted");
            return None;
        }
        // Charges without a verdict count as in flight until they are reconciled.
        if self.degraded.pending_charges.has_key(request.key.id) {
            self.metrics.count_wait("pending");
            return None;
        }
        let early = match self.open_keys.begin_admitted(&request.key, request.applied.version) {
            Ok(early) => early,
            Err(reason) => {
                self.metrics.count_wait(if reason == WaitReason::NotOpen { "not_open" } else { "in_flight" });
                return None;
            }
        };
        let Some(verdict) = Issued::admit_before_charge(&self.degraded, request, &early) else {
            self.metrics.count_wait("not_open");
            return None;
        };
        self.metrics.count_optimistic();
        let admitted = Self::prove(request, verdict);
        let (admission, home, request) = (Arc::clone(self), Arc::clone(home), request.clone());
        let AdmittedEarly { charge, opened, .. } = early;
        tokio::spawn(async move { admission.charge_admitted(&home, &request, opened, charge).await });
        admitted
    }

    /// Charges a request that is already admitted. What home does not charge is reconciled.
    async fn charge_admitted(
        &self,
        home: &HomeClient,
        request: &KeyRequest,
        opened: OpenedKey,
        charge: ChargeInFlight,
    ) {
        let OpenedKey { burst_epoch, burst_limit, .. } = opened;
        let (key, sent) = (&request.key, home.sent_charge(request.arrival_at_owner()));
        let pending_charges = &self.degraded.pending_charges;
        // By the clock as it is known after the reply.
        let add_uncharged = || {
            let sent = home.sent_charge(request.arrival_at_owner());
            let uncharged = PendingCharge { at: sent.arrival, id: request.charge_id };
            pending_charges.add_admitted(key, burst_epoch, (sent.at.day(), burst_limit), uncharged);
        };
        match charge_at_home(home, request, sent).await {
            Ok(verdict) => {
                self.degraded.observe_charged(key, &verdict);
                match &verdict {
                    Verdict::Admitted { .. } => {}
                    Verdict::QuotaExhausted { quota } => {
                        self.metrics.count_over_limit();
                        pending_charges.add_logged(key, burst_epoch, quota.day);
                    }
                    Verdict::Unknown(_)
                    | Verdict::WrongSecret(_)
                    | Verdict::Inactive(_)
                    | Verdict::Paused { .. }
                    | Verdict::PausedNow { .. }
                    | Verdict::Expired(_)
                    | Verdict::Outdated { .. }
                    | Verdict::Restricted(_) => {
                        self.metrics.count_over_limit();
                        add_uncharged();
                    }
                }
                return charge.finish(&verdict);
            }
            Err(FailedCharge { error: BackendError::NoSuchKey, .. }) => {
                self.metrics.count_over_limit();
                self.degraded.remove_key(key.id);
                self.key_lookups.missing_keys.insert(key.id, Instant::now());
            }
            Err(FailedCharge { sent: Some(sent), .. }) => {
                let unconfirmed = UnconfirmedCharge { sent, id: request.charge_id, is_admitted: true };
                pending_charges.add_unconfirmed(key, burst_epoch, unconfirmed);
            }
            Err(FailedCharge { sent: None, .. }) => add_uncharged(),
        }
        charge.close();
    }

    /// Begins a charge that waits for home.
    pub(super) fn begin_charge(&self, request: &KeyRequest) -> Option<ChargeInFlight> {
        let Backend::Home(home) = &self.backend else { return None };
        home.is_optimistic().then(|| self.open_keys.begin(&request.key, request.applied.version))
    }
}
