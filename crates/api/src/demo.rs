//! GET /api/v1/ip/demo: a fixed set of fields, no key, one quota for all anonymous callers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use domain::{Client, Used, View};
use ledger::{Charged, DemoVerdict, Moment};

use crate::Api;
use crate::operation::Operation;
use crate::refusal::Refusal;

pub(crate) async fn demo(State(api): State<Arc<Api>>, Extension(client): Extension<Client>) -> Response {
    let answer = async {
        let charged = api.admit_demo().await?;
        Ok(api.answer(&client, View::Demo, &charged))
    };
    api.finish(Operation::Demo.label(), answer.await)
}

impl Api {
    async fn admit_demo(&self) -> Result<Charged, Refusal> {
        if let Some(charged) = self.demo_spent.remembered() {
            self.tally.demo_refused(charged.day);
            return Err(Refusal::DemoSpent(charged));
        }
        let Some(verdict) = self.charge_demo().await else { return self.admit_demo_by_recall().await };
        match verdict {
            DemoVerdict::Admitted { charged, yesterday } => {
                let used = Used { day: charged.day, count: charged.used };
                self.fallback.demo.counted(used);
                self.tally.demo_admitted(used);
                if let Some(yesterday) = yesterday {
                    self.tally.demo_admitted(yesterday);
                }
                Ok(charged)
            }
            DemoVerdict::Spent(charged) => {
                self.fallback.demo.counted(Used { day: charged.day, count: charged.used });
                Err(self.refuse_demo(charged))
            }
            DemoVerdict::Unknown => Err(Refusal::Internal),
        }
    }

    pub(crate) fn refuse_demo(&self, charged: Charged) -> Refusal {
        self.demo_spent.remember(charged);
        self.tally.demo_refused(charged.day);
        Refusal::DemoSpent(charged)
    }

    /// `None` when the stores do not answer.
    async fn charge_demo(&self) -> Option<DemoVerdict> {
        if self.fallback.breaker.is_open() {
            return None;
        }
        let charged = match self.ledger.charge_demo().await {
            Ok(DemoVerdict::Unknown) => {
                let rolled_up = self.find_demo_used().await?;
                self.ledger.charge_demo_knowing(rolled_up).await
            }
            charged => charged,
        };
        charged.inspect(|_| self.fallback.breaker.answered()).map_err(|error| self.missed(&error)).ok()
    }
}

/// A spent demo quota stays spent until midnight: further callers cost the counter store nothing.
#[derive(Default)]
pub(crate) struct SpentMemory(Mutex<Option<(Instant, Charged)>>);

impl SpentMemory {
    fn remember(&self, charged: Charged) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), charged));
    }

    /// The verdict as the counter store would give it now; `None` when midnight may have passed.
    fn remembered(&self) -> Option<Charged> {
        let (since, charged) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let elapsed = since.elapsed();
        (elapsed < Duration::from_secs(charged.retry_after_s().saturating_sub(1))).then(|| {
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            Charged { now: Moment(charged.now.0.saturating_add(elapsed_ms)), ..charged }
        })
    }
}
