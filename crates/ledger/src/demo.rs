//! The demo's verdict: no key, no burst limit, one quota for all.

use domain::{DEMO_DAILY_MAX, Used};

use crate::ledger::Ledger;
use crate::outage::LedgerError;
use crate::slot::{self, Slot};
use crate::verdict::{Charged, Reply};

/// What the counter store says of a demo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemoVerdict {
    /// The counter store has lost the count: ask the durable store, and charge with what it knows.
    Unknown,
    /// The day's quota is spent.
    Spent(Charged),
    /// Admitted and charged.
    Admitted {
        /// When, against which limit, in which day.
        charged: Charged,
        /// The newest day before, as long as the record keeps it.
        yesterday: Option<Used>,
    },
}

impl Ledger {
    /// Charges a demo request.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn charge_demo(&self) -> Result<DemoVerdict, LedgerError> {
        self.demo_call("", 0).await
    }

    /// Charges a demo request, knowing the count that was rolled up last.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn charge_demo_knowing(&self, rolled_up: Option<Used>) -> Result<DemoVerdict, LedgerError> {
        let (day, count) = rolled_up.map_or((0, 0), |used| (used.day.0, used.count));
        self.demo_call(&day.to_string(), count).await
    }

    async fn demo_call(&self, day: &str, count: u64) -> Result<DemoVerdict, LedgerError> {
        let mut attempt = self.begin(Slot::of(&slot::demo())).await?;
        let charge = |stamp: &str| {
            let mut call = self.demo.prepare_invoke();
            call.key(slot::demo()).arg(stamp).arg(DEMO_DAILY_MAX).arg(day).arg(count);
            call
        };
        loop {
            let reply = self.call(&mut attempt, charge).await?;
            let reply = Reply::of(&reply)?;
            return match reply.code()? {
                b'0' if reply.is_stamped_elsewhere() && self.renew(&mut attempt).await? => continue,
                b'0' => Ok(DemoVerdict::Unknown),
                b'5' => Ok(DemoVerdict::Spent(reply.charged()?)),
                b'6' => Ok(DemoVerdict::Admitted { charged: reply.charged()?, yesterday: reply.yesterday()? }),
                _ => Err(LedgerError::Strange("verdict")),
            };
        }
    }
}
