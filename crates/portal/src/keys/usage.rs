//! The usage page and its CSV files: today live, and the last 30 days.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use ipseity_domain::{KeyId, UtcDay};
use ipseity_store::{KeySummary, UsageRow};

use crate::error::PortalError;
use crate::keys::csv;
use crate::keys::list::key_badge;
use crate::page::{CurrentMember, render_page};
use crate::state::Portal;
use crate::time;
use crate::view::chart::daily_chart;
use crate::view::frame::Tab;
use crate::view::usage::{KeyUsageRow, UsageDayRow, UsagePage, UsageView};

/// Number of days on the page, including today.
const USAGE_DAYS: u32 = 30;

#[derive(Clone, Copy, Default)]
struct UsageCount {
    admitted: u64,
    by_reason: [u64; 6],
}

impl UsageCount {
    fn add(&mut self, row: &UsageRow) {
        self.admitted += row.admitted;
        for (sum, count) in self.by_reason.iter_mut().zip(row.refused) {
            *sum += count;
        }
    }

    fn rejected_total(&self) -> u64 {
        self.by_reason.iter().sum()
    }
}

/// The first of the last 30 days.
pub(crate) fn first_day() -> UtcDay {
    UtcDay(time::today().0.saturating_sub(USAGE_DAYS - 1))
}

impl Portal {
    /// The usage of one key, with today's live count.
    pub(crate) async fn key_usage_view(
        &self,
        member: &CurrentMember,
        key: KeyId,
        used_today: u64,
    ) -> Result<UsageView, PortalError> {
        let rows = self.store.usage().list(member.account.id, Some(key), first_day()).await?;
        Ok(usage_view(rows.iter(), used_today))
    }

    /// The stored rows, with today's counts raised to those of Redis.
    async fn usage_rows(&self, member: &CurrentMember) -> Result<(Vec<KeySummary>, Vec<UsageRow>), PortalError> {
        let keys = self.store.keys().list(member.account.id).await?;
        let mut rows = self.store.usage().list(member.account.id, None, first_day()).await?;
        let today = time::today();
        for (key, used) in keys.iter().zip(self.key_usage_today(&keys).await) {
            match rows.iter_mut().find(|row| row.key == key.id && row.day == today) {
                Some(row) => row.admitted = row.admitted.max(used),
                None if used > 0 => rows.push(UsageRow { key: key.id, day: today, admitted: used, refused: [0; 6] }),
                None => {}
            }
        }
        Ok((keys, rows))
    }
}

/// The last 30 days, with today's live count.
pub(crate) fn usage_view<'a>(rows: impl Iterator<Item = &'a UsageRow>, used_today: u64) -> UsageView {
    let (today, first) = (time::today(), first_day());
    let mut days: BTreeMap<UtcDay, UsageCount> =
        (first.0..=today.0).map(|day| (UtcDay(day), UsageCount::default())).collect();
    for row in rows {
        days.entry(row.day).or_default().add(row);
    }
    let today_entry = days.entry(today).or_default();
    today_entry.admitted = today_entry.admitted.max(used_today);
    let (today_admitted, today_rejected) = (today_entry.admitted, today_entry.rejected_total());

    let mut total = UsageCount::default();
    for count in days.values() {
        total.admitted += count.admitted;
        for (sum, count) in total.by_reason.iter_mut().zip(count.by_reason) {
            *sum += count;
        }
    }
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

pub(crate) async fn show(State(portal): State<Arc<Portal>>, member: CurrentMember) -> Result<Response, PortalError> {
    let (keys, rows) = portal.usage_rows(&member).await?;
    let today = time::today();
    let key_usage = |key: &KeySummary| {
        let mut total = UsageCount::default();
        let rows_of_key = || rows.iter().filter(|row| row.key == key.id);
        rows_of_key().for_each(|row| total.add(row));
        let used_today = rows_of_key().find(|row| row.day == today).map_or(0, |row| row.admitted);
        KeyUsageRow {
            id: key.id.to_string(),
            name: key.name.clone(),
            badge: key_badge(key, used_today),
            used_today,
            daily_limit: key.daily_limit,
            admitted: total.admitted,
            rejected: total.rejected_total(),
        }
    };
    Ok(render_page(&UsagePage {
        frame: member.frame(&portal, "Usage", Tab::Usage),
        total: usage_view(rows.iter(), 0),
        keys: keys.iter().map(key_usage).collect(),
    }))
}

pub(crate) async fn download_csv(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
) -> Result<Response, PortalError> {
    let (keys, rows) = portal.usage_rows(&member).await?;
    Ok(csv_attachment("ipseity-usage.csv", csv::usage_csv(&keys, &rows)))
}

pub(crate) async fn download_key_csv(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: CurrentMember,
) -> Result<Response, PortalError> {
    let id = KeyId::parse(&id).ok_or(PortalError::NotFound)?;
    let (keys, mut rows) = portal.usage_rows(&member).await?;
    if !keys.iter().any(|key| key.id == id) {
        return Err(PortalError::NotFound);
    }
    rows.retain(|row| row.key == id);
    Ok(csv_attachment(&format!("ipseity-usage-{id}.csv"), csv::usage_csv(&keys, &rows)))
}

fn csv_attachment(file_name: &str, text: String) -> Response {
    let disposition = format!("attachment; filename=\"{file_name}\"");
    ([(CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()), (CONTENT_DISPOSITION, disposition)], text).into_response()
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
