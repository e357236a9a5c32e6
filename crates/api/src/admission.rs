//! Admission: one verdict from the ledger; what the counter store does not know, the durable store is asked once. A verdict that is missed
//! is made up for by what the node knows itself (`recall`).

use std::pin::pin;
use std::time::Instant;

use domain::{Key, KeyId, Pause, Scope, Used};
use http::request::Parts;
use ledger::{ChargeName, Charged, Fence, LedgerError, Moment, Verdict};
use store::RefusedReason;
use tracing::{Instrument, info_span};

use crate::credentials;
use crate::failpoint;
use crate::flood::{Lasting, Run};
use crate::refusal::Refusal;
use crate::{Api, TRACE, Tally};

/// How often a fill that changes keep overtaking is tried: each try was overtaken by a change in its bucket within milliseconds.
const FILLS_MAX: usize = 5;

/// Proof that a request was authenticated and charged, or noted to be: only admission and recall make one.
pub(crate) struct Admitted {
    pub(super) scope: Scope,
    pub(super) charged: Charged,
}

impl Admitted {
    pub(crate) const fn scope(&self) -> Scope {
        self.scope
    }

    pub(crate) const fn charged(&self) -> &Charged {
        &self.charged
    }
}

impl Api {
    /// Authenticates a request and charges it.
    ///
    /// What seldom happens is kept in memory of its own, here and below: room for it would be made, and moved, for every request.
    pub(crate) async fn admit(&self, parts: &Parts) -> Result<Admitted, Refusal> {
        let presented = credentials::presented(parts).ok_or(Refusal::MissingKey)?;
        let key = Key::parse(&presented).ok_or(Refusal::InvalidKey)?;
        let run = self.floods.find(&key.digest);
        if let Some(lasting) = run.and_then(Run::remembered) {
            return Err(lasting.into());
        }
        let name = ChargeName::next();
        match self.ask(&key, name).await {
            Ok(verdict) => {
                if run.is_some() && matches!(verdict, Verdict::Admitted { .. }) {
                    self.floods.forget(&key.digest);
                }
                self.judge(&key, verdict).await
            }
            Err(Missed::Refused(refusal)) => Err(refusal),
            Err(Missed::NotCharged) => Box::pin(self.admit_by_recall(&key, name, None)).await,
            Err(Missed::Unanswered(sent)) => Box::pin(self.admit_by_recall(&key, name, Some(sent))).await,
        }
    }

    async fn ask(&self, key: &Key, name: ChargeName) -> Result<Verdict, Missed> {
        let mut verdict = self.charge(key, name).await?;
        if matches!(verdict, Verdict::Unknown(_)) {
            verdict = Box::pin(self.charge_unknown(key, name)).await?;
        }
        Ok(verdict)
    }

    async fn charge(&self, key: &Key, name: ChargeName) -> Result<Verdict, Missed> {
        if self.fallback.breaker.is_open() {
            return Err(Missed::NotCharged);
        }
        let start = Instant::now();
        let sent = self.fallback.clock.at(start);
        let under_way = UnderWay { tally: &self.tally, key: key.id };
        let charge = pin!(self.ledger.charge(key, name));
        let verdict = charge.instrument(info_span!(target: TRACE, "charge")).await;
        std::mem::forget(under_way);
        let heard = Instant::now();
        self.metrics.verdict(heard - start);
        match verdict {
            Ok(verdict) => {
                self.fallback.breaker.answered();
                self.fallback.saw(key, &verdict, heard);
                Ok(verdict)
            }
            Err(error) => {
                self.missed(&error);
                Err(if error.may_be_applied() { Missed::Unanswered(sent) } else { Missed::NotCharged })
            }
        }
    }

    /// Counts a call that the counter store did not answer; after a few in a row it is left alone.
    pub(crate) fn missed(&self, error: &LedgerError) {
        if self.fallback.breaker.missed() {
            tracing::error!(
                error = error as &dyn std::error::Error,
                "the counter store does not answer; going on from memory"
            );
            self.metrics.recalling(true);
            self.ledger.hang_up();
        } else {
            tracing::debug!(error = error as &dyn std::error::Error, "no verdict");
        }
    }

    /// Fills the record from the durable store and charges again. For each key one request at a time does this; the others wait for it.
    async fn charge_unknown(&self, key: &Key, name: ChargeName) -> Result<Verdict, Missed> {
        let Err(turn) = self.unknown.get_value_or_guard_async(&key.id).await else {
            return Err(Refusal::InvalidKey.into());
        };
        for _ in 0..FILLS_MAX {
            let verdict = self.charge(key, name).await?;
            let Verdict::Unknown(fence) = &verdict else { return Ok(verdict) };
            if !self.fill(key.id, fence).await? {
                // A guard that was displaced is no loss: the id is only looked up once more.
                let _ = turn.insert(());
                return Err(Refusal::InvalidKey.into());
            }
        }
        tracing::error!("a record could not be filled: changes in its bucket overtook it again and again");
        Err(Refusal::Internal.into())
    }

    /// Asks the durable store and writes what it says; `false` when no such key exists.
    async fn fill(&self, id: KeyId, fence: &Fence) -> Result<bool, Missed> {
        let Ok(_permit) = self.lookups.try_acquire() else {
            tracing::warn!("more unknown keys at once than [ledger] lookups_max");
            return Err(Refusal::Internal.into());
        };
        let Some(found) = self.find_standing(id).await else { return Err(Missed::NotCharged) };
        let Some(mut standing) = found else { return Ok(false) };
        // What this node was told last may not have been rolled up yet.
        standing.count_at_least(self.fallback.used(id));
        failpoint::hold("fill-before-write").await;
        self.ledger.fill(&standing, fence).await.map_err(|error| {
            self.missed(&error);
            Missed::NotCharged
        })?;
        self.metrics.filled();
        Ok(true)
    }

    async fn judge(&self, key: &Key, verdict: Verdict) -> Result<Admitted, Refusal> {
        if let Verdict::Admitted { scope, charged, yesterday, .. } = verdict {
            self.tally.admitted(key.id, Used { day: charged.day, count: charged.used });
            if let Some(yesterday) = yesterday {
                self.tally.yesterday(key.id, yesterday);
            }
            return Ok(Admitted { scope, charged });
        }
        let refusal = self.refuse(key, &verdict);
        if let Verdict::PausedNow(pause) = &verdict {
            Box::pin(self.record(pause)).await;
        }
        Err(refusal)
    }

    /// Counts a request that a verdict does not admit.
    pub(crate) fn refuse(&self, key: &Key, verdict: &Verdict) -> Refusal {
        match verdict {
            Verdict::DaySpent { charged } => {
                self.tally.refused(key.id, charged.day, RefusedReason::Day);
                Refusal::DaySpent(*charged)
            }
            Verdict::PausedNow(pause) => {
                let now = Moment(pause.at_ms);
                self.tally.refused(key.id, now.day(), RefusedReason::Burst);
                Refusal::Burst(now)
            }
            Verdict::WrongSecret(now) => self.refuse_for_long(key, *now, Lasting::WrongSecret),
            Verdict::Inactive(now) => self.refuse_for_long(key, *now, Lasting::Inactive),
            Verdict::Paused(now) => self.refuse_for_long(key, *now, Lasting::Paused),
            Verdict::Unknown(_) | Verdict::Admitted { .. } => {
                tracing::error!("a record that was filled is unknown again; does the counter store evict keys?");
                Refusal::Internal
            }
        }
    }

    fn refuse_for_long(&self, key: &Key, now: Moment, lasting: Lasting) -> Refusal {
        self.tally.refused(key.id, now.day(), lasting.reason());
        self.floods.note(key.digest, lasting);
        lasting.into()
    }

    /// Writes a pause before the answer goes out. If the durable store does not answer in time, the entry in the counter store's `pending`
    /// set stands until the relay has swept it.
    async fn record(&self, pause: &Pause) {
        failpoint::hold("pause-before-row").await;
        if let Err(error) = self.store.record_pause(pause).await {
            tracing::error!(error = &error as &dyn std::error::Error, "a pause could not be written yet");
        } else if let Err(error) = self.ledger.confirm(pause).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "a pause could not be confirmed yet");
        }
    }
}

/// A charge under way. Dropped before it is done, because its caller hung up, it has its count read when the next ones are rolled up.
struct UnderWay<'a> {
    tally: &'a Tally,
    key: KeyId,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.tally.unheard(self.key);
    }
}

/// Why there is no verdict.
pub(crate) enum Missed {
    /// None is needed.
    Refused(Refusal),
    /// The counter store could not be asked: nothing was charged.
    NotCharged,
    /// It was asked, at this moment, and did not answer: the charge may have been applied.
    Unanswered(Moment),
}

impl From<Refusal> for Missed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
