//! Admission without a verdict of the counter store: by what this node knows, and by what the durable store says as long as it answers.

use domain::{Key, KeyId, Pause, Standing, Used};
use ledger::{ChargeName, DemoVerdict, Moment, Verdict};
use store::StoreError;

use crate::Api;
use crate::admission::Admitted;
use crate::refusal::Refusal;

impl Api {
    /// Whether the counter store is left alone, and memory stands in for it.
    #[must_use]
    pub fn is_recalling(&self) -> bool {
        self.fallback.breaker.is_open()
    }

    /// Whether memory could stand in for the stores: it knows some key.
    #[must_use]
    pub fn can_recall(&self) -> bool {
        self.fallback.knows_any()
    }

    /// Some key has changed in the durable store, or may have.
    pub fn doubt(&self) {
        self.fallback.doubt();
    }

    /// Whether news of changes reaches this node from now on.
    pub fn follows_news(&self, follows: bool) {
        self.fallback.follows_news(follows);
    }

    pub(crate) async fn admit_by_recall(
        &self,
        key: &Key,
        name: ChargeName,
        unanswered_since: Option<Moment>,
    ) -> Result<Admitted, Refusal> {
        self.metrics.recalled();
        self.refresh(key.id).await?;
        let Some(verdict) = self.fallback.judge(key, name, unanswered_since) else {
            tracing::debug!("neither store can tell, and this node does not know");
            return Err(Refusal::Internal);
        };
        if unanswered_since.is_some() && !matches!(verdict, Verdict::Admitted { .. }) {
            self.tally.unheard(key.id);
        }
        if let Verdict::Admitted { scope, charged, .. } = verdict {
            return Ok(Admitted { scope, charged });
        }
        let refusal = self.refuse(key, &verdict);
        if let Verdict::PausedNow(pause) = &verdict
            // The one answer that is worth waiting for: every other node learns of the pause by this row.
            && !self.record_own(pause).await
        {
            tracing::warn!("a pause could not be written yet");
        }
        Err(refusal)
    }

    /// Makes what is known of a key as good as it can be now.
    async fn refresh(&self, id: KeyId) -> Result<(), Refusal> {
        if self.fallback.is_fresh(id) {
            return Ok(());
        }
        if self.unknown.get(&id).is_some() {
            return Err(Refusal::InvalidKey);
        }
        let news = self.fallback.news();
        let found = match self.lookups.try_acquire() {
            Ok(_permit) => self.find_standing(id).await,
            Err(_) => None,
        };
        match found {
            Some(Some(standing)) => self.fallback.learn(&standing, news),
            Some(None) => {
                self.fallback.forget(id);
                self.unknown.insert(id, ());
                return Err(Refusal::InvalidKey);
            }
            None if self.fallback.is_usable(id) => {}
            None => {
                tracing::debug!("a key is unknown here, and neither store answers");
                return Err(Refusal::Internal);
            }
        }
        Ok(())
    }

    /// What the durable store says of a key; `None` when it does not answer in time, which is short for a key that is known here.
    pub(crate) async fn find_standing(&self, id: KeyId) -> Option<Option<Standing>> {
        let is_known = self.fallback.is_usable(id);
        self.ask_store(is_known, self.store.find_standing(id)).await
    }

    /// The demo's count as the durable store has it; `None` when it does not answer in time.
    pub(crate) async fn find_demo_used(&self) -> Option<Option<Used>> {
        self.ask_store(self.fallback.demo.is_known(), self.store.find_demo_used()).await
    }

    /// Asks the durable store; where memory could stand in for it, only if it answers these days, and not for long.
    async fn ask_store<T>(
        &self,
        has_stand_in: bool,
        question: impl Future<Output = Result<T, StoreError>>,
    ) -> Option<T> {
        let answer = if has_stand_in {
            if !self.fallback.may_ask_store() {
                return None;
            }
            tokio::time::timeout(self.fallback.bounds.store_timeout, question).await.ok()
        } else {
            Some(question.await)
        };
        let Some(Ok(answer)) = answer else {
            self.fallback.store_missed();
            if let Some(Err(error)) = answer {
                tracing::warn!(error = &error as &dyn std::error::Error, "the durable store could not be asked");
            }
            return None;
        };
        Some(answer)
    }

    pub(crate) async fn admit_demo_by_recall(&self) -> Result<ledger::Charged, Refusal> {
        self.metrics.recalled();
        if !self.fallback.demo.is_known() {
            let Some(used) = self.find_demo_used().await else { return Err(Refusal::Internal) };
            let unused = Used { day: self.fallback.clock.now().day(), count: 0 };
            self.fallback.demo.counted(used.unwrap_or(unused));
        }
        match self.fallback.demo.judge(self.fallback.clock.now()) {
            DemoVerdict::Admitted { charged, .. } => Ok(charged),
            DemoVerdict::Spent(charged) => Err(self.refuse_demo(charged)),
            DemoVerdict::Unknown => Err(Refusal::Internal),
        }
    }

    /// Writes the row of a pause that this node made by itself; until that is done it waits among the unsettled.
    pub(crate) async fn record_own(&self, pause: &Pause) -> bool {
        let is_recorded = self.store.record_pause(pause).await.is_ok();
        if is_recorded {
            self.fallback.unsettled.recorded(pause);
        }
        is_recorded
    }
}
