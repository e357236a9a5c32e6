//! Charging demo requests. They have no key and no burst limit, and all clients share one daily quota.

use ipseity_domain::{DAILY_LIMIT_MAX, DailyUsage};

use crate::error::LedgerError;
use crate::layout::{self, HashSlot};
use crate::ledger::Ledger;
use crate::redis::identity::Incarnation;
use crate::scripts;
use crate::verdict::{Quota, ScriptReply};

/// The result of charging a demo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemoVerdict {
    /// Redis has lost the count. Read it from PostgreSQL, then call
    /// [`charge_demo_with_stored_usage`](Ledger::charge_demo_with_stored_usage).
    Unknown,
    /// The daily quota is exhausted.
    Exhausted(Quota),
    /// The request is admitted and charged.
    Admitted {
        /// The state of the quota after this request.
        quota: Quota,
        /// The count of the previous day with requests.
        yesterday: Option<DailyUsage>,
    },
}

impl Ledger {
    /// Charges a demo request.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn charge_demo(&self, limit: u64) -> Result<DemoVerdict, LedgerError> {
        self.run_demo_script(limit, "", 0).await
    }

    /// Charges a demo request, starting at the count in PostgreSQL if Redis has lost it.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn charge_demo_with_stored_usage(
        &self,
        limit: u64,
        stored_usage: Option<DailyUsage>,
    ) -> Result<DemoVerdict, LedgerError> {
        let (day, count) = stored_usage.map_or((0, 0), |usage| (usage.day.0, usage.count));
        self.run_demo_script(limit, &day.to_string(), count).await
    }

    async fn run_demo_script(&self, limit: u64, day: &str, count: u64) -> Result<DemoVerdict, LedgerError> {
        let mut request = self.begin_request(HashSlot::of(&layout::demo_key())).await?;
        let build_invocation = |incarnation: &Incarnation| {
            let mut invocation = scripts::CHARGE_DEMO.prepare_invoke();
            invocation
                .key(layout::demo_key())
                .arg(incarnation.as_bytes())
                .arg(limit.min(DAILY_LIMIT_MAX))
                .arg(day)
                .arg(count);
            invocation
        };
        loop {
            let reply = self.run_script(&mut request, build_invocation).await?;
            let reply = ScriptReply::from_value(&reply)?;
            return match reply.code()? {
                b'0' if reply.is_incarnation_mismatch() && self.refresh_identity(&mut request).await? => continue,
                b'0' => Ok(DemoVerdict::Unknown),
                b'5' => Ok(DemoVerdict::Exhausted(reply.quota()?)),
                b'6' => Ok(DemoVerdict::Admitted { quota: reply.quota()?, yesterday: reply.yesterday()? }),
                _ => Err(LedgerError::UnexpectedReply("verdict")),
            };
        }
    }
}
