//! Admission: one verdict from the ledger; what the counter store does not know, the durable store is asked once.

use std::time::Instant;

use domain::{Key, KeyId, Pause, Scope, Used};
use http::request::Parts;
use ledger::{Charged, Fence, LedgerError, Moment, Verdict};
use store::RefusedReason;

use crate::Api;
use crate::credentials;
use crate::failpoint;
use crate::flood::Lasting;
use crate::refusal::Refusal;

/// How often a fill that changes keep overtaking is tried: each try was overtaken by a change in its bucket within milliseconds.
const FILLS_MAX: usize = 5;

/// Proof that a request was authenticated and charged: only this module makes one.
pub(crate) struct Admitted {
    scope: Scope,
    charged: Charged,
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
    pub(crate) async fn admit(&self, parts: &Parts) -> Result<Admitted, Refusal> {
        let presented = credentials::presented(parts).ok_or(Refusal::MissingKey)?;
        let key = Key::parse(&presented).ok_or(Refusal::InvalidKey)?;
        if let Some(lasting) = self.floods.remembered(&key.digest) {
            return Err(lasting.into());
        }
        let mut verdict = self.charge(&key).await?;
        if matches!(verdict, Verdict::Unknown(_)) {
            verdict = self.charge_unknown(&key).await?;
        }
        self.judge(&key, verdict).await
    }

    async fn charge(&self, key: &Key) -> Result<Verdict, Refusal> {
        let start = Instant::now();
        let verdict = self.ledger.charge(key).await;
        self.metrics.verdict(start.elapsed());
        verdict.map_err(|error| outage(&error))
    }

    /// Fills the record from the durable store and charges again. For each key one request at a time does this; the others wait for it.
    async fn charge_unknown(&self, key: &Key) -> Result<Verdict, Refusal> {
        let Err(turn) = self.unknown.get_value_or_guard_async(&key.id).await else {
            return Err(Refusal::InvalidKey);
        };
        for _ in 0..FILLS_MAX {
            let verdict = self.charge(key).await?;
            let Verdict::Unknown(fence) = &verdict else { return Ok(verdict) };
            if !self.fill(key.id, fence).await? {
                // A guard that was displaced is no loss: the id is only looked up once more.
                let _ = turn.insert(());
                return Err(Refusal::InvalidKey);
            }
        }
        tracing::error!("a record could not be filled: changes in its bucket overtook it again and again");
        Err(Refusal::Internal)
    }

    /// Asks the durable store and writes what it says; `false` when no such key exists.
    async fn fill(&self, id: KeyId, fence: &Fence) -> Result<bool, Refusal> {
        let Ok(_permit) = self.lookups.try_acquire() else {
            tracing::warn!("more unknown keys at once than [ledger] lookups_max");
            return Err(Refusal::Internal);
        };
        let found = self.store.find_standing(id).await.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "an unknown key could not be looked up");
            Refusal::Internal
        })?;
        let Some(standing) = found else { return Ok(false) };
        failpoint::hold("fill-before-write").await;
        self.ledger.fill(&standing, fence).await.map_err(|error| outage(&error))?;
        self.metrics.filled();
        Ok(true)
    }

    async fn judge(&self, key: &Key, verdict: Verdict) -> Result<Admitted, Refusal> {
        match verdict {
            Verdict::Admitted { scope, charged, yesterday } => {
                self.floods.forget(&key.digest);
                self.tally.admitted(key.id, Used { day: charged.day, count: charged.used });
                if let Some(yesterday) = yesterday {
                    self.tally.yesterday(key.id, yesterday);
                }
                Ok(Admitted { scope, charged })
            }
            Verdict::DaySpent { charged } => {
                self.tally.refused(key.id, charged.day, RefusedReason::Day);
                Err(Refusal::DaySpent(charged))
            }
            Verdict::PausedNow(pause) => {
                let now = Moment(pause.at_ms);
                self.tally.refused(key.id, now.day(), RefusedReason::Burst);
                self.record(&pause).await;
                Err(Refusal::Burst(now))
            }
            Verdict::WrongSecret(now) => Err(self.refuse(key, now, Lasting::WrongSecret, RefusedReason::WrongSecret)),
            Verdict::Inactive(now) => Err(self.refuse(key, now, Lasting::Inactive, RefusedReason::Inactive)),
            Verdict::Paused(now) => Err(self.refuse(key, now, Lasting::Paused, RefusedReason::Paused)),
            Verdict::Unknown(_) => {
                tracing::error!("a record that was filled is unknown again; does the counter store evict keys?");
                Err(Refusal::Internal)
            }
        }
    }

    fn refuse(&self, key: &Key, now: Moment, lasting: Lasting, reason: RefusedReason) -> Refusal {
        self.tally.refused(key.id, now.day(), reason);
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

fn outage(error: &LedgerError) -> Refusal {
    tracing::error!(error = error as &dyn std::error::Error, "no verdict");
    Refusal::Internal
}
