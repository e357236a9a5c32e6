//! The numbers of the usage explorer, as the page and its files show them.

use std::collections::BTreeMap;

use ipseity_domain::KeyId;
use ipseity_keys::KeyActivity;
use ipseity_store::KeySummary;

use crate::error::PortalError;
use crate::keys::explorer::filter::{Outcome, UsageFilter, UsageSpan};
use crate::keys::list::load_activities;
use crate::keys::usage_count::UsageCount;
use crate::state::Portal;
use crate::time::{self, HOURS_PER_DAY};

/// The requests of a key in an hour or on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReportRow {
    /// The hour or the day since 1970.
    pub(crate) at: u32,
    pub(crate) key: KeyId,
    pub(crate) count: UsageCount,
}

/// What a filter selects.
pub(crate) struct UsageReport {
    pub(crate) filter: UsageFilter,
    pub(crate) span: UsageSpan,
    /// All keys of the account.
    pub(crate) keys: Vec<KeySummary>,
    /// Their requests today, in the same order.
    pub(crate) activities: Vec<KeyActivity>,
    /// Each key and hour or day with requests, newest first.
    pub(crate) rows: Vec<ReportRow>,
}

type CountsByKey = BTreeMap<(u32, KeyId), UsageCount>;

impl Portal {
    /// Reads what a filter selects. Today's successful requests are those that Redis counted.
    pub(crate) async fn load_usage(&self, account_id: i64, filter: UsageFilter) -> Result<UsageReport, PortalError> {
        let now_s = time::now_s();
        let span = filter.span(now_s);
        let mut counts = self.load_counts(account_id, &filter, span).await?;
        // Afterwards: what a flush writes in between must not count twice, as flushed and as not flushed yet.
        let keys = self.store.keys().list(account_id).await?;
        if filter.key.is_some_and(|id| !keys.iter().any(|key| key.id == id)) {
            return Err(PortalError::NotFound);
        }
        let activities = load_activities(&self.ledger, &keys).await;
        let now = if span.is_hourly { time::hour_of(now_s) } else { time::hour_of(now_s) / HOURS_PER_DAY };
        for (key, activity) in keys.iter().zip(&activities) {
            if span.last != now || filter.key.is_some_and(|id| id != key.id) {
                continue;
            }
            let count = counts.entry((now, key.id)).or_default();
            if span.is_hourly {
                count.admitted += activity.used_today.saturating_sub(key.used_today);
            } else {
                count.admitted = count.admitted.max(activity.used_today);
            }
        }
        Ok(UsageReport { filter, span, keys, activities, rows: select_rows(counts, filter.outcome) })
    }

    async fn load_counts(
        &self,
        account_id: i64,
        filter: &UsageFilter,
        span: UsageSpan,
    ) -> Result<CountsByKey, PortalError> {
        let mut counts = CountsByKey::new();
        let days = span.day_of(span.first)..=span.day_of(span.last);
        if !span.is_hourly {
            for row in self.store.usage().list(account_id, filter.key, days).await? {
                let count = UsageCount { admitted: row.admitted, by_reason: row.refused };
                counts.insert((row.day.0, row.key), count);
            }
            return Ok(counts);
        }
        for row in self.store.usage().list_hours(account_id, filter.key, days).await? {
            let hour = row.day.0 * HOURS_PER_DAY + u32::from(row.hour);
            if !(span.first..=span.last).contains(&hour) {
                continue;
            }
            let count = counts.entry((hour, row.key)).or_default();
            match row.refusal {
                None => count.admitted += row.count,
                Some(reason) => {
                    if let Some(sum) = count.by_reason.get_mut(reason) {
                        *sum += row.count;
                    }
                }
            }
        }
        Ok(counts)
    }
}

/// Only the requests with this outcome.
fn only(mut count: UsageCount, outcome: Outcome) -> UsageCount {
    if !outcome.includes_admitted() {
        count.admitted = 0;
    }
    for (reason, rejected) in count.by_reason.iter_mut().enumerate() {
        if !outcome.includes_refused(reason) {
            *rejected = 0;
        }
    }
    count
}

/// The rows with requests of the outcome, newest first.
fn select_rows(counts: CountsByKey, outcome: Outcome) -> Vec<ReportRow> {
    let select = |((at, key), count): ((u32, KeyId), UsageCount)| ReportRow { at, key, count: only(count, outcome) };
    let mut rows: Vec<_> = counts.into_iter().map(select).filter(|row| row.count.total() > 0).collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.at), row.key));
    rows
}

impl UsageReport {
    /// The requests of all selected keys in each hour or on each day, oldest first, also without requests.
    pub(crate) fn series(&self) -> Vec<(u32, UsageCount)> {
        let mut series: BTreeMap<u32, UsageCount> =
            (self.span.first..=self.span.last).map(|at| (at, UsageCount::default())).collect();
        for row in &self.rows {
            series.entry(row.at).or_default().add(&row.count);
        }
        series.into_iter().collect()
    }

    /// The requests of a key, or of all selected keys.
    pub(crate) fn total(&self, key: Option<KeyId>) -> UsageCount {
        let mut total = UsageCount::default();
        self.rows.iter().filter(|row| key.is_none_or(|key| row.key == key)).for_each(|row| total.add(&row.count));
        total
    }

    /// The key that the filter selects.
    pub(crate) fn selected_key(&self) -> Option<&KeySummary> {
        self.filter.key.and_then(|id| self.keys.iter().find(|key| key.id == id))
    }

    pub(crate) fn key_name(&self, id: KeyId) -> &str {
        self.keys.iter().find(|key| key.id == id).map_or("", |key| key.name.as_str())
    }

    /// Requests per day of the selected key, or of all keys together.
    pub(crate) fn daily_limit(&self) -> u64 {
        let keys = self.keys.iter().filter(|key| self.filter.key.is_none_or(|id| key.id == id));
        keys.map(|key| key.daily_limit).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_outcome_and_are_newest_first() {
        let key = |text| KeyId::parse(text).expect("key ID is valid");
        let (first, second) = (key("0123456789"), key("abcdefghij"));
        let count = |admitted, by_reason| UsageCount { admitted, by_reason };
        let counts = || {
            CountsByKey::from([
                ((1, first), count(5, [1, 0, 0, 0, 0, 0])),
                ((2, second), count(0, [0, 7, 0, 0, 0, 0])),
                ((2, first), count(3, [0; 6])),
                ((3, first), count(0, [0; 6])),
            ])
        };
        let found = |outcome| {
            let rows = select_rows(counts(), outcome);
            rows.iter().map(|row| (row.at, row.key, row.count.total())).collect::<Vec<_>>()
        };
        assert_eq!(found(Outcome::All), [(2, first, 3), (2, second, 7), (1, first, 6)]);
        assert_eq!(found(Outcome::Admitted), [(2, first, 3), (1, first, 5)]);
        assert_eq!(found(Outcome::Refused(0)), [(1, first, 1)]);
        assert_eq!(found(Outcome::Refused(5)), []);
    }
}
