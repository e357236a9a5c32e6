//! Settling: requests that a node admitted on its own reach the counter store when it is back, each exactly once.

use std::fmt;
use std::fmt::Write as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use domain::{Day, KeyId, Pause, Used};
use redis::Value;

use crate::ledger::{Ledger, nonce};
use crate::link::UNACKNOWLEDGED_MAX;
use crate::outage::LedgerError;
use crate::slot::{self, Bucket, Slot};
use crate::verdict::{Charged, Fence, Moment, Reply};

/// A call that was sent and not answered may still arrive for so long: before that nobody can say that it was not applied.
pub const LATE_MAX: Duration = UNACKNOWLEDGED_MAX.saturating_add(Duration::from_secs(1));

/// Names that there are: with the millisecond before it, an entry in the log is still a number that the store keeps in 64 bits.
const NAMES: u32 = 500_000;
const NAME_DIGITS: usize = 6;

/// Six digits that name a charge; with the millisecond before them they are its entry in the log. Always even: the odd number after it is
/// the entry of the same request if the day's limit refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeName(u32);

impl ChargeName {
    /// The next name of this process: two of its charges never share one within the reach of a log, as random names now and then
    /// did. Processes begin anywhere, so that they hardly meet.
    #[must_use]
    pub fn next() -> Self {
        static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| AtomicU32::new(fastrand::u32(..)));
        Self(NEXT.fetch_add(1, Ordering::Relaxed) % NAMES * 2)
    }
}

impl ChargeName {
    pub(crate) fn digits(self) -> [u8; NAME_DIGITS] {
        let mut rest = self.0;
        let mut digits = [b'0'; NAME_DIGITS];
        for digit in digits.iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        digits
    }
}

impl fmt::Display for ChargeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

/// A request by its time and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedCharge {
    /// When it was admitted.
    pub at: Moment,
    /// The name it was, or would have been, charged under.
    pub name: ChargeName,
}

/// Requests of one key that a node admitted on its own.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The key.
    pub key: KeyId,
    /// Settled once, however often it is sent.
    pub number: u64,
    /// The window that the requests belong to.
    pub window: u64,
    /// Requests that were surely not charged, by day, oldest first.
    pub days: Vec<Used>,
    /// Those of them that are recent enough for the burst limit.
    pub recent: Vec<NamedCharge>,
    /// Requests that may have been charged: the call went out and no answer came.
    pub unanswered: Vec<NamedCharge>,
    /// A pause on the node's own evidence.
    pub pause: Option<Pause>,
}

/// Demo requests that a node admitted on its own.
#[derive(Clone, Debug)]
pub struct DemoBatch {
    /// Settled once, however often it is sent.
    pub number: u64,
    /// By day, oldest first.
    pub days: Vec<Used>,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The counter store does not know the key: fill its record, and settle again.
    Unknown(Fence),
    /// In the books.
    Done {
        /// The day's count with the batch in it.
        charged: Charged,
        /// The day before, as long as it waits to be rolled up.
        yesterday: Option<Used>,
        /// Requests of which nobody can tell any more whether they were charged; they were not charged again.
        untold: u64,
    },
}

impl Ledger {
    /// Settles a batch.
    ///
    /// # Errors
    /// When the counter store does not answer in time; the same batch may be sent again.
    pub async fn settle(&self, batch: &Batch) -> Result<Settled, LedgerError> {
        let bucket = Bucket::of(batch.key);
        let pause = batch.pause.as_ref().map(evidence).unwrap_or_default();
        let (days, recent, unanswered) = (days(&batch.days), entries(&batch.recent), entries(&batch.unanswered));
        let settle = |stamp: &str| {
            let mut call = self.settle.prepare_invoke();
            call.key(bucket.record(batch.key)).key(bucket.log(batch.key)).key(bucket.pending()).key(bucket.fence());
            call.key(bucket.settled(batch.key, batch.number));
            call.arg(stamp).arg(nonce()).arg(batch.key.as_str()).arg(batch.window);
            call.arg(&pause).arg(&days).arg(&recent).arg(&unanswered);
            call
        };
        let mut attempt = self.begin(bucket.slot()).await?;
        loop {
            let reply = self.call(&mut attempt, settle).await?;
            let reply = Reply::of(&reply)?;
            return match reply.code()? {
                b'0' if reply.is_stamped_elsewhere() && self.renew(&mut attempt).await? => continue,
                b'0' => Ok(Settled::Unknown(reply.fence(&attempt.session.identity.stamp)?)),
                b'6' => Ok(Settled::Done {
                    charged: reply.charged()?,
                    yesterday: reply.yesterday()?,
                    untold: reply.untold()?,
                }),
                _ => Err(LedgerError::Strange("verdict")),
            };
        }
    }

    /// Settles a batch of the demo's, knowing the count that was rolled up last if that was asked for; `false` when it must be.
    ///
    /// # Errors
    /// When the counter store does not answer in time; the same batch may be sent again.
    pub async fn settle_demo(&self, batch: &DemoBatch, rolled_up: Option<Option<Used>>) -> Result<bool, LedgerError> {
        let known = rolled_up.map(|used| used.map_or((0, 0), |used| (used.day.0, used.count)));
        let (day, count) = known.map_or((String::new(), 0), |(day, count)| (day.to_string(), count));
        let days = days(&batch.days);
        let settle = |stamp: &str| {
            let mut call = self.settle_demo.prepare_invoke();
            call.key(slot::demo()).key(slot::demo_settled(batch.number));
            call.arg(stamp).arg(&days).arg(&day).arg(count);
            call
        };
        let mut attempt = self.begin(Slot::of(&slot::demo())).await?;
        let Value::Int(known) = self.call(&mut attempt, settle).await? else {
            return Err(LedgerError::Strange("reply"));
        };
        Ok(known == 1)
    }
}

/// `<ms>:<counts>`, as charge.lua writes it.
fn evidence(pause: &Pause) -> String {
    let counts: Vec<String> = pause.counts.iter().map(u16::to_string).collect();
    format!("{}:{}", pause.at_ms, counts.join(","))
}

fn days(days: &[Used]) -> String {
    let mut text = String::new();
    for Used { day: Day(day), count } in days {
        // Writing to a string does not fail.
        let _ = write!(text, "{day}:{count},");
    }
    text
}

fn entries(charges: &[NamedCharge]) -> String {
    let mut text = String::new();
    for NamedCharge { at, name } in charges {
        let _ = write!(text, "{:013}{name},", at.0);
    }
    text
}
