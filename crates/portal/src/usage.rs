//! Usage: today live, 30 days as rolled up, and the same as CSV.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use domain::{Day, KeyId};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use store::{KeyRow, UsageRow};

use crate::page::{Member, show as show_page};
use crate::problem::Problem;
use crate::view::{DayRow, KeyUsage, Tab, UsagePage, UsageView, days_chart};
use crate::{Portal, csv, time};

/// Days on a page, today included.
const DAYS: u32 = 30;

#[derive(Clone, Copy, Default)]
struct Count {
    admitted: u64,
    by_reason: [u64; 5],
}

impl Count {
    fn add(&mut self, row: &UsageRow) {
        self.admitted += row.admitted;
        for (sum, count) in self.by_reason.iter_mut().zip(row.refused) {
            *sum += count;
        }
    }

    fn refused(&self) -> u64 {
        self.by_reason.iter().sum()
    }
}

fn first_day() -> Day {
    Day(time::today().0.saturating_sub(DAYS - 1))
}

impl Portal {
    /// The use of one of a member's keys, with what is known of today.
    pub(crate) async fn usage_of(&self, member: &Member, key: KeyId, today: u64) -> Result<UsageView, Problem> {
        let rows = self.store.usage(member.account.id, Some(key), first_day()).await?;
        Ok(view(rows.iter(), today))
    }

    /// Rows as rolled up, with today's as far as the counter store knows better.
    async fn rows(&self, member: &Member) -> Result<(Vec<KeyRow>, Vec<UsageRow>), Problem> {
        let keys = self.store.keys(member.account.id).await?;
        let mut rows = self.store.usage(member.account.id, None, first_day()).await?;
        let today = time::today();
        for (key, used) in keys.iter().zip(self.used_today(&keys).await) {
            match rows.iter_mut().find(|row| row.key == key.id && row.day == today) {
                Some(row) => row.admitted = row.admitted.max(used),
                None if used > 0 => rows.push(UsageRow { key: key.id, day: today, admitted: used, refused: [0; 5] }),
                None => {}
            }
        }
        Ok((keys, rows))
    }
}

fn view<'a>(rows: impl Iterator<Item = &'a UsageRow>, today_used: u64) -> UsageView {
    let (today, first) = (time::today(), first_day());
    let mut days: BTreeMap<Day, Count> = (first.0..=today.0).map(|day| (Day(day), Count::default())).collect();
    for row in rows {
        days.entry(row.day).or_default().add(row);
    }
    let of_today = days.entry(today).or_default();
    of_today.admitted = of_today.admitted.max(today_used);
    let (today_count, today_refused) = (of_today.admitted, of_today.refused());

    let mut total = Count::default();
    for count in days.values() {
        total.admitted += count.admitted;
        for (sum, count) in total.by_reason.iter_mut().zip(count.by_reason) {
            *sum += count;
        }
    }
    let bars: Vec<_> = days.iter().map(|(day, count)| (time::day(*day), count.admitted, count.refused())).collect();
    let row = |(day, count): (&Day, &Count)| DayRow {
        day: time::day(*day),
        admitted: count.admitted,
        refused: count.refused(),
        by_reason: count.by_reason,
    };
    UsageView {
        today: today_count,
        today_refused,
        admitted: total.admitted,
        refused: total.refused(),
        by_reason: total.by_reason,
        chart: days_chart(&bars),
        days: days.iter().rev().map(row).collect(),
    }
}

pub(crate) async fn show(State(portal): State<Arc<Portal>>, member: Member) -> Result<Response, Problem> {
    let (keys, rows) = portal.rows(&member).await?;
    let today = time::today();
    let line = |key: &KeyRow| {
        let mut total = Count::default();
        let own = || rows.iter().filter(|row| row.key == key.id);
        own().for_each(|row| total.add(row));
        KeyUsage {
            id: key.id.to_string(),
            name: key.name.clone(),
            state: key.state.name(),
            today: own().find(|row| row.day == today).map_or(0, |row| row.admitted),
            limit: member.account.daily_limit,
            admitted: total.admitted,
            refused: total.refused(),
        }
    };
    Ok(show_page(&UsagePage {
        frame: member.frame(&portal, "Usage", Tab::Usage),
        total: view(rows.iter(), 0),
        keys: keys.iter().map(line).collect(),
    }))
}

pub(crate) async fn csv(State(portal): State<Arc<Portal>>, member: Member) -> Result<Response, Problem> {
    let (keys, rows) = portal.rows(&member).await?;
    Ok(attached("ipseity-usage.csv", csv::usage(&keys, &rows)))
}

pub(crate) async fn key_csv(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: Member,
) -> Result<Response, Problem> {
    let id = KeyId::parse(&id).ok_or(Problem::NotFound)?;
    let (keys, mut rows) = portal.rows(&member).await?;
    if !keys.iter().any(|key| key.id == id) {
        return Err(Problem::NotFound);
    }
    rows.retain(|row| row.key == id);
    Ok(attached(&format!("ipseity-usage-{id}.csv"), csv::usage(&keys, &rows)))
}

fn attached(name: &str, text: String) -> Response {
    let disposition = format!("attachment; filename=\"{name}\"");
    ([(CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()), (CONTENT_DISPOSITION, disposition)], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_has_every_day_and_takes_the_greater_count_of_today() {
        let key = KeyId::parse("0123456789").expect("an id");
        let (today, yesterday) = (time::today(), Day(time::today().0 - 1));
        let rows = [
            UsageRow { key, day: yesterday, admitted: 5, refused: [1, 0, 0, 2, 0] },
            UsageRow { key, day: today, admitted: 7, refused: [0, 3, 0, 0, 0] },
        ];
        let view = view(rows.iter(), 9);
        assert_eq!((view.today, view.today_refused, view.admitted, view.refused), (9, 3, 14, 6));
        assert_eq!(view.by_reason, [1, 3, 0, 2, 0]);
        assert_eq!(view.days.len(), 30);
        assert_eq!((view.days[0].day.as_str(), view.days[0].admitted), (time::day(today).as_str(), 9));
        assert_eq!((view.days[1].admitted, view.days[1].refused), (5, 3));
    }
}
