//! One key as a node knows it, and a verdict from that alone: the rules of charge.lua on the node's own log.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use domain::{BURST_MAX, BURST_WINDOW_S, Day, Key, KeyDigest, Marks, Pause, Scope, Standing, State, Used};
use ledger::{Charged, Moment, Verdict};

const BURST_WINDOW_MS: u64 = BURST_WINDOW_S * 1000;
/// A clock that goes back by no more than this is held.
const HELD_MS: u64 = 1000;

pub(super) struct Known {
    /// Its count is the last that the counter store told, or the one that was rolled up: never what waits to be settled.
    pub(super) standing: Standing,
    pub(super) told_at: Instant,
    teller: Teller,
    /// Requests that this node has admitted in the last 60 s, oldest first: a lower bound of all.
    times: VecDeque<Moment>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Teller {
    /// The counter store, which does not tell all: a rolled key's other digest, the generation.
    Verdict,
    /// The durable store, at this piece of news.
    Store(u64),
}

impl Known {
    pub(super) fn new(key: &Key, scope: Scope, charged: &Charged, window: u64, told_at: Instant) -> Self {
        let standing = Standing {
            id: key.id,
            digest: key.digest,
            retired: None,
            scope,
            daily_limit: charged.limit,
            marks: Marks::default(),
            generation: 0,
            window,
            used: None,
        };
        Self { standing, told_at, teller: Teller::Verdict, times: VecDeque::new() }
    }

    pub(super) fn told(standing: Standing, news: u64) -> Self {
        Self { standing, told_at: Instant::now(), teller: Teller::Store(news), times: VecDeque::new() }
    }

    pub(super) fn saw_admitted(&mut self, key: &Key, scope: Scope, charged: &Charged, window: u64, heard: Instant) {
        if !self.standing.opens_to(&key.digest, charged.now.s()) {
            (self.standing.digest, self.standing.retired) = (key.digest, None);
        }
        self.enter(window);
        self.standing.scope = scope;
        self.standing.daily_limit = charged.limit;
        self.standing.marks = Marks::default();
        // Verdicts that were made together are heard in any order.
        self.standing.count_at_least(Some(Used { day: charged.day, count: charged.used }));
        (self.told_at, self.teller) = (heard, Teller::Verdict);
        self.note(charged.now);
    }

    pub(super) fn saw_spent(&mut self, charged: &Charged) {
        self.standing.daily_limit = charged.limit;
        self.standing.count_at_least(Some(Used { day: charged.day, count: charged.used }));
        self.note(charged.now);
    }

    pub(super) fn learn(&mut self, standing: &Standing, news: u64) {
        // Two readings may come in the wrong order.
        if standing.generation < self.standing.generation {
            return;
        }
        self.enter(standing.window);
        let counted = self.standing.used;
        self.standing = standing.clone();
        self.standing.count_at_least(counted);
        (self.told_at, self.teller) = (Instant::now(), Teller::Store(news));
    }

    pub(super) const fn is_told_by_store(&self) -> bool {
        matches!(self.teller, Teller::Store(_))
    }

    /// What a verdict told is never fresh: the key may have been paused elsewhere a moment before the counter store went away.
    pub(super) fn is_fresh(&self, news: u64, age_max: Duration) -> bool {
        self.teller == Teller::Store(news) && self.told_at.elapsed() < age_max
    }

    /// Judges a request and, if it is admitted, notes its time. `waiting` counts what this node has admitted to a day and not settled yet.
    /// `None` for a digest of which only the stores could say whether it is this key's.
    pub(super) fn judge(
        &mut self,
        digest: &KeyDigest,
        now: Moment,
        waiting: impl FnOnce(Day) -> u64,
    ) -> Option<Verdict> {
        if !self.standing.opens_to(digest, now.s()) {
            return self.is_told_by_store().then_some(Verdict::WrongSecret(now));
        }
        match self.standing.marks.state() {
            State::Inactive => return Some(Verdict::Inactive(now)),
            State::Paused => return Some(Verdict::Paused(now)),
            State::Active => {}
        }
        let now = self.note(now);
        if self.times.len() > BURST_MAX {
            self.standing.marks.paused = true;
            return Some(Verdict::PausedNow(self.evidence(now)));
        }
        let counted = self.standing.used.unwrap_or(Used { day: Day(0), count: 0 });
        let day = now.day().max(counted.day);
        let used = if counted.day == day { counted.count } else { 0 } + waiting(day);
        let limit = self.standing.daily_limit;
        Some(if used >= limit {
            Verdict::DaySpent { charged: Charged { now, limit, day, used: limit } }
        } else {
            let charged = Charged { now, limit, day, used: used + 1 };
            let (scope, window) = (self.standing.scope, self.standing.window);
            Verdict::Admitted { scope, charged, yesterday: None, window }
        })
    }

    /// A resume opens another window, and with it an empty log.
    fn enter(&mut self, window: u64) {
        if self.standing.window != window {
            self.standing.window = window;
            self.times.clear();
        }
    }

    /// Puts a request into the log and says when it was, by a clock that does not go back a little.
    fn note(&mut self, now: Moment) -> Moment {
        let now = match self.times.back() {
            Some(last) if now < *last && last.0 - now.0 <= HELD_MS => *last,
            Some(last) if now < *last => {
                self.times.clear();
                now
            }
            Some(_) | None => now,
        };
        while self.times.front().is_some_and(|time| now.0 - time.0 >= BURST_WINDOW_MS) {
            self.times.pop_front();
        }
        if self.times.len() > BURST_MAX {
            self.times.pop_front();
        }
        self.times.push_back(now);
        now
    }

    fn evidence(&self, now: Moment) -> Pause {
        let mut counts = [0; BURST_WINDOW_S as usize];
        for time in &self.times {
            let ago_s = usize::try_from((now.0 - time.0) / 1000).unwrap_or(usize::MAX);
            if let Some(count) = counts.iter_mut().rev().nth(ago_s) {
                *count += 1;
            }
        }
        Pause { key: self.standing.id, window: self.standing.window, at_ms: now.0, counts }
    }
}

#[cfg(test)]
mod tests {
    use domain::ClearKey;

    use super::*;

    const NOON: Moment = Moment(1_800_014_400_000);

    fn known(limit: u64) -> (Known, Key) {
        let key = ClearKey::mint(|| fastrand::u8(..)).key();
        let charged = Charged { now: NOON, limit, day: NOON.day(), used: 1 };
        let mut known = Known::new(&key, Scope::Ip, &charged, 1, Instant::now());
        known.saw_admitted(&key, Scope::Ip, &charged, 1, Instant::now());
        (known, key)
    }

    fn at(ms: u64) -> Moment {
        Moment(NOON.0 + ms)
    }

    #[test]
    fn it_goes_on_counting_where_the_store_stopped() {
        let (mut known, key) = known(3);
        let Some(Verdict::Admitted { charged, .. }) = known.judge(&key.digest, at(1), |_| 0) else { panic!("refused") };
        assert_eq!(charged.used, 2);
        let Some(Verdict::Admitted { charged, .. }) = known.judge(&key.digest, at(2), |_| 1) else { panic!("refused") };
        assert_eq!((charged.used, charged.remaining()), (3, 0));
        assert!(matches!(known.judge(&key.digest, at(3), |_| 2), Some(Verdict::DaySpent { .. })));
        let next_day = Moment(NOON.0 + 86_400_000);
        let Some(Verdict::Admitted { charged, .. }) = known.judge(&key.digest, next_day, |_| 0) else {
            panic!("refused")
        };
        assert_eq!((charged.day, charged.used), (next_day.day(), 1));
    }

    #[test]
    fn verdicts_that_are_heard_in_the_wrong_order_lower_no_count() {
        let (mut known, key) = known(10);
        for used in [3, 2] {
            let charged = Charged { now: NOON, limit: 10, day: NOON.day(), used };
            known.saw_admitted(&key, Scope::Ip, &charged, 1, Instant::now());
        }
        assert_eq!(known.standing.used, Some(Used { day: NOON.day(), count: 3 }));
    }

    #[test]
    fn the_301st_in_its_own_minute_pauses_with_evidence() {
        let (mut known, key) = known(10_000);
        for ms in 1..300 {
            assert!(matches!(known.judge(&key.digest, at(ms), |_| 0), Some(Verdict::Admitted { .. })), "{ms}");
        }
        let Some(Verdict::PausedNow(pause)) = known.judge(&key.digest, at(59_999), |_| 0) else { panic!("admitted") };
        assert_eq!((pause.counts[0], pause.counts[59], pause.counts.iter().sum::<u16>()), (300, 1, 301));
        assert!(matches!(known.judge(&key.digest, at(120_000), |_| 0), Some(Verdict::Paused(_))));
    }

    #[test]
    fn a_minute_later_the_window_is_open_again() {
        let (mut known, key) = known(10_000);
        for ms in 1..300 {
            known.judge(&key.digest, at(ms), |_| 0);
        }
        assert!(matches!(known.judge(&key.digest, at(60_000), |_| 0), Some(Verdict::Admitted { .. })));
    }

    #[test]
    fn another_digest_is_only_refused_on_the_durable_stores_word() {
        let (mut known, key) = known(10_000);
        let stranger = KeyDigest::new([7; 32]);
        assert!(known.judge(&stranger, at(1), |_| 0).is_none());
        let standing = Standing { generation: 2, ..known.standing.clone() };
        known.learn(&standing, 0);
        assert!(matches!(known.judge(&stranger, at(2), |_| 0), Some(Verdict::WrongSecret(_))));
        assert!(matches!(known.judge(&key.digest, at(3), |_| 0), Some(Verdict::Admitted { .. })));
    }

    #[test]
    fn news_and_verdicts_make_it_ask_again() {
        let (mut known, _) = known(10_000);
        assert!(!known.is_fresh(0, Duration::from_secs(1)));
        known.learn(&known.standing.clone(), 0);
        assert!(known.is_fresh(0, Duration::from_secs(1)) && !known.is_fresh(1, Duration::from_secs(1)));
    }

    #[test]
    fn a_resume_empties_the_log_and_an_older_reading_changes_nothing() {
        let (mut known, key) = known(10_000);
        for ms in 1..=300 {
            known.judge(&key.digest, at(ms), |_| 0);
        }
        assert!(matches!(known.judge(&key.digest, at(301), |_| 0), Some(Verdict::Paused(_))));
        let resumed = Standing { generation: 5, window: 2, marks: Marks::default(), ..known.standing.clone() };
        let older = Standing { generation: 4, ..known.standing.clone() };
        known.learn(&resumed, 0);
        known.learn(&older, 0);
        assert!(matches!(known.judge(&key.digest, at(302), |_| 0), Some(Verdict::Admitted { .. })));
    }
}
