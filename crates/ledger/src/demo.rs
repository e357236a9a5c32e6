//! The demo's verdict: no key, no burst limit, one quota for all.

use ipseity_domain::{DEMO_DAILY_LIMIT, DailyUsage};

use crate::error::LedgerError;
use crate::layout::{self, HashSlot};
use crate::ledger::Ledger;
use crate::scripts;
use crate::verdict::{Quota, ScriptReply};

/// What the counter store says of a demo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemoVerdict {
    /// The counter store has lost the count: ask the durable store, and charge with what it knows.
    Unknown,
    /// The day's quota is spent.
    Exhausted(Quota),
    /// Admitted and charged.
    Admitted {
        /// When, against which limit, in which day.
        quota: Quota,
        /// The newest day before, as long as the record keeps it.
        yesterday: Option<DailyUsage>,
    },
}

impl Ledger {
    /// Charges a demo request.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn charge_demo(&self) -> Result<DemoVerdict, LedgerError> {
        self.run_demo_script("", 0).await
    }

    /// Charges a demo request, knowing the count that was rolled up last.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn charge_demo_with_stored_usage(
        &self,
        stored_usage: Option<DailyUsage>,
    ) -> Result<DemoVerdict, LedgerError> {
        let (day, count) = stored_usage.map_or((0, 0), |used| (used.day.0, used.count));
        self.run_demo_script(&day.to_string(), count).await
    }

    async fn run_demo_script(&self, day: &str, count: u64) -> Result<DemoVerdict, LedgerError> {
        let mut request = self.begin_request(HashSlot::of(&layout::demo_key())).await?;
        let build_invocation = |incarnation: &str| {
            let mut invocation = scripts::CHARGE_DEMO.prepare_invoke();
            invocation.key(layout::demo_key()).arg(incarnation).arg(DEMO_DAILY_LIMIT).arg(day).arg(count);
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
