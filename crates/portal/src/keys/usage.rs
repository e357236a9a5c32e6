//! The usage of a key on its page: today live, and the last 30 days.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use ipseity_domain::{KeyId, UtcDay};
use ipseity_store::UsageRow;

use crate::error::PortalError;
use crate::keys::usage_count::UsageCount;
use crate::page::CurrentMember;
use crate::state::Portal;
use crate::time;
use crate::view::bar_chart::daily_chart;
use crate::view::usage::{UsageDayRow, UsageView};

/// Number of days on the page, including today.
const USAGE_DAYS: u32 = 30;

/// The last 30 days.
pub(crate) fn last_days() -> RangeInclusive<UtcDay> {
    let today = time::today();
    UtcDay(today.0.saturating_sub(USAGE_DAYS - 1))..=today
}

impl Portal {
    /// The usage of one key, with today's live count.
    pub(crate) async fn key_usage_view(
        &self,
        member: &CurrentMember,
        key: KeyId,
        used_today: u64,
    ) -> Result<UsageView, PortalError> {
        let rows = self.store.usage().list(member.account.id, Some(key), last_days()).await?;
        Ok(usage_view(rows.iter(), used_today))
    }
}

/// The last 30 days, with today's live count.
pub(crate) fn usage_view<'a>(rows: impl Iterator<Item = &'a UsageRow>, used_today: u64) -> UsageView {
    let (first, today) = last_days().into_inner();
    let mut days: BTreeMap<UtcDay, UsageCount> =
        (first.0..=today.0).map(|day| (UtcDay(day), UsageCount::default())).collect();
    for row in rows {
        days.entry(row.day).or_default().add(&UsageCount { admitted: row.admitted, by_reason: row.refused });
    }
    let today_entry = days.entry(today).or_default();
    today_entry.admitted = today_entry.admitted.max(used_today);
    let (today_admitted, today_rejected) = (today_entry.admitted, today_entry.rejected_total());

    let mut total = UsageCount::default();
    days.values().for_each(|count| total.add(count));
    let bars: Vec<_> =
        days.iter().map(|(day, count)| (time::format_day(*day), count.admitted, count.rejected_total())).collect();
    let to_row = |(day, count): (&UtcDay, &UsageCount)| UsageDayRow {
        day: time::format_day(*day),
        admitted: count.admitted,
        rejected: count.rejected_total(),
        by_reason: count.by_reason,
    };
    UsageView {
        today_admitted,
        today_rejected,
        admitted: total.admitted,
        rejected: total.rejected_total(),
        by_reason: total.by_reason,
        chart: daily_chart(&bars),
        days: days.iter().rev().map(to_row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_view_has_30_days_and_the_higher_count_of_today() {
        let key = KeyId::parse("0123456789").expect("key ID is valid");
        let (today, yesterday) = (time::today(), UtcDay(time::today().0 - 1));
        let rows = [
            UsageRow { key, day: yesterday, admitted: 5, refused: [1, 0, 0, 2, 0, 0] },
            UsageRow { key, day: today, admitted: 7, refused: [0, 3, 0, 0, 0, 0] },
        ];
        let view = usage_view(rows.iter(), 9);
        assert_eq!((view.today_admitted, view.today_rejected, view.admitted, view.rejected), (9, 3, 14, 6));
        assert_eq!(view.by_reason, [1, 3, 0, 2, 0, 0]);
        assert_eq!(view.days.len(), 30);
        assert_eq!((view.days[0].day.as_str(), view.days[0].admitted), (time::format_day(today).as_str(), 9));
        assert_eq!((view.days[1].admitted, view.days[1].rejected), (5, 3));
    }
}
