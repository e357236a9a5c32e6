//! The demo without the counter store: the last count that it told, and what was admitted since.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::{DEMO_DAILY_MAX, Day, Used};
use ledger::{Charged, DemoBatch, DemoVerdict, Moment};

#[derive(Default)]
pub(crate) struct DemoBook(Mutex<Page>);

#[derive(Default)]
struct Page {
    counted: Option<Used>,
    days: BTreeMap<Day, u64>,
    /// On its way, and the same until it is acknowledged.
    sent: Option<DemoBatch>,
}

impl DemoBook {
    /// Notes a count that a store told.
    pub(crate) fn counted(&self, used: Used) {
        let mut page = self.page();
        page.counted = [page.counted, Some(used)].into_iter().flatten().max_by_key(|used| (used.day, used.count));
    }

    pub(crate) fn is_known(&self) -> bool {
        self.page().counted.is_some()
    }

    pub(crate) fn judge(&self, now: Moment) -> DemoVerdict {
        let mut page = self.page();
        let counted = page.counted.unwrap_or(Used { day: Day(0), count: 0 });
        let day = now.day().max(counted.day);
        let used = if counted.day == day { counted.count } else { 0 } + page.waiting(day);
        let limit = DEMO_DAILY_MAX;
        if used >= limit {
            return DemoVerdict::Spent(Charged { now, limit, day, used: limit });
        }
        *page.days.entry(day).or_default() += 1;
        DemoVerdict::Admitted { charged: Charged { now, limit, day, used: used + 1 }, yesterday: None }
    }

    /// The batch that can be sent now.
    pub(crate) fn take(&self) -> Option<DemoBatch> {
        let mut page = self.page();
        if page.sent.is_none() && !page.days.is_empty() {
            let days = std::mem::take(&mut page.days).into_iter().map(|(day, count)| Used { day, count }).collect();
            page.sent = Some(DemoBatch { number: fastrand::u64(..), days });
        }
        page.sent.clone()
    }

    /// The batch is in the books: the counter store's count holds at least this much now.
    pub(crate) fn done(&self) {
        let mut page = self.page();
        for Used { day, count } in page.sent.take().map(|batch| batch.days).unwrap_or_default() {
            page.counted = match page.counted {
                Some(counted) if counted.day > day => Some(counted),
                Some(counted) if counted.day == day => Some(Used { day, count: counted.count + count }),
                Some(_) | None => Some(Used { day, count }),
            };
        }
    }

    fn page(&self) -> MutexGuard<'_, Page> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Page {
    fn waiting(&self, day: Day) -> u64 {
        let sent = self.sent.iter().flat_map(|batch| &batch.days).filter(|used| used.day == day);
        self.days.get(&day).copied().unwrap_or(0) + sent.map(|used| used.count).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quota_is_counted_on_and_what_is_sent_counts_until_it_is_told() {
        let (book, now) = (DemoBook::default(), Moment(1_800_014_400_000));
        book.counted(Used { day: now.day(), count: 998 });
        assert!(matches!(book.judge(now), DemoVerdict::Admitted { charged, .. } if charged.used == 999));
        assert_eq!(book.take().expect("a batch").days, [Used { day: now.day(), count: 1 }]);
        assert!(matches!(book.judge(now), DemoVerdict::Admitted { charged, .. } if charged.used == 1000));
        assert!(matches!(book.judge(now), DemoVerdict::Spent(_)));
    }
}
