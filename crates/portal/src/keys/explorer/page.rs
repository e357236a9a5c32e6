//! The page of the usage explorer: its form, chart and tables.

use ipseity_domain::UtcDay;
use ipseity_keys::KeyActivity;
use ipseity_store::KeySummary;

use crate::keys::explorer::filter::{Outcome, UsageFilter, UsageParams, UsageRange, preset_name};
use crate::keys::explorer::report::UsageReport;
use crate::keys::list::{key_list_version, key_status};
use crate::keys::usage_count::UsageCount;
use crate::time::{self, HOURS_PER_DAY};
use crate::view::bar_chart::{Bar, BarChart};
use crate::view::filters::with_commas;
use crate::view::usage::{Choice, KeyUsageRow, RangeLink, UsageDayRow, UsageForm, UsageReportView};

/// More days are drawn as weeks.
const DAY_BARS_MAX: usize = 92;
/// Number of labels on the axis, apart from the first.
const AXIS_LABELS: usize = 5;
const DAYS_PER_WEEK: u32 = 7;
/// 1970-01-01 was the fourth day of its week.
const EPOCH_WEEKDAY: u32 = 3;

/// The form with what was entered. Links to ranges keep the key and the outcome.
pub(super) fn form_view(params: &UsageParams, keys: &[KeySummary], error: Option<String>) -> UsageForm {
    let today = time::today();
    let filter = UsageFilter::parse(params, today).ok();
    let current = filter.map(|filter| filter.range);
    let link = |(range, name, label): &(UsageRange, &'static str, &'static str)| RangeLink {
        id: name,
        label,
        href: match filter {
            Some(filter) => format!("/usage?{}", UsageFilter { range: *range, ..filter }.query()),
            None => format!("/usage?range={name}"),
        },
        is_current: current == Some(*range),
    };
    let key_choice = |key: &KeySummary| Choice {
        value: key.id.to_string(),
        label: key.name.clone(),
        is_selected: filter.is_some_and(|filter| filter.key == Some(key.id)) || params.key == key.id.as_str(),
    };
    let outcome_choice = |(_, name, label): &(Outcome, &str, &str)| Choice {
        value: (*name).to_owned(),
        label: (*label).to_owned(),
        is_selected: params.outcome == *name,
    };
    UsageForm {
        ranges: UsageRange::PRESETS.iter().map(link).collect(),
        range: current.map_or("", preset_name),
        from: params.from.clone(),
        to: params.to.clone(),
        today: time::format_day(today),
        keys: keys.iter().map(key_choice).collect(),
        outcomes: Outcome::NAMES.iter().map(outcome_choice).collect(),
        error,
    }
}

/// The numbers of a report.
pub(super) fn report_view(report: &UsageReport) -> UsageReportView {
    let (filter, span) = (&report.filter, report.span);
    let title = filter.range.title();
    let series = report.series();
    let total = report.total(None);
    let is_weekly = !span.is_hourly && series.len() > DAY_BARS_MAX;
    let columns = if is_weekly { weeks(&series) } else { single(&series) };
    let bars: Vec<Bar> =
        columns.iter().enumerate().map(|(index, column)| bar(report, &columns, index, column)).collect();
    let unit = if is_weekly {
        "week"
    } else if span.is_hourly {
        "hour"
    } else {
        "day"
    };
    let has_limit = unit == "day" && filter.outcome.includes_admitted();
    let chart = BarChart {
        title: &format!("Requests per {unit}, {}", title.to_lowercase()),
        empty_text: "No requests in this range",
        bars: &bars,
        daily_limit: has_limit.then(|| report.daily_limit()).filter(|limit| *limit > 0),
    };
    let to_row = |(bar, column): (&Bar, &Column)| UsageDayRow {
        day: bar.label.clone(),
        admitted: bar.admitted,
        rejected: bar.rejected,
        by_reason: column.count.by_reason,
    };
    let selected_key = report.selected_key();
    UsageReportView {
        notes: notes(&chart, is_weekly, span.is_hourly, selected_key.is_some()),
        has_limit_line: chart.shown_limit().is_some(),
        chart: chart.render(),
        unit,
        query: filter.query(),
        selected_key: selected_key.map(|key| (key.id.to_string(), key.name.clone())),
        admitted: total.admitted,
        rejected: total.rejected_total(),
        by_reason: total.by_reason,
        shows_admitted: filter.outcome.includes_admitted(),
        shows_rejected: filter.outcome != Outcome::Admitted,
        shows_reasons: filter.outcome == Outcome::All,
        rows: bars.iter().zip(&columns).rev().map(to_row).collect(),
        keys: report.keys.iter().zip(&report.activities).map(|key| key_row(report, key)).collect(),
        version: key_list_version(&report.keys, &report.activities),
        title,
    }
}

/// Consecutive hours or days, with their requests.
struct Column {
    first: u32,
    last: u32,
    count: UsageCount,
}

fn single(series: &[(u32, UsageCount)]) -> Vec<Column> {
    series.iter().map(|(at, count)| Column { first: *at, last: *at, count: *count }).collect()
}

/// Weeks from Monday. The first and the last one may be shorter.
fn weeks(days: &[(u32, UsageCount)]) -> Vec<Column> {
    let week_of = |day: u32| (day + EPOCH_WEEKDAY) / DAYS_PER_WEEK;
    let mut weeks: Vec<Column> = Vec::new();
    for (day, count) in days {
        match weeks.last_mut().filter(|week| week_of(week.last) == week_of(*day)) {
            Some(week) => {
                week.last = *day;
                week.count.add(count);
            }
            None => weeks.push(Column { first: *day, last: *day, count: *count }),
        }
    }
    weeks
}

fn bar(report: &UsageReport, columns: &[Column], index: usize, column: &Column) -> Bar {
    let span = report.span;
    let is_hourly = span.is_hourly;
    let day = |at| time::format_day_as(UtcDay(at), "%-d %b %Y");
    let label = match column {
        Column { first, .. } if is_hourly => time::format_hour_as(*first, "%-d %b, %H:00"),
        Column { first, last, .. } if first == last => day(*first),
        Column { first, last, .. } => format!("{} to {}", time::format_day_as(UtcDay(*first), "%-d %b"), day(*last)),
    };
    let from_end = columns.len() - 1 - index;
    let every = columns.len().div_ceil(AXIS_LABELS + 1).max(1);
    let axis_label = if is_hourly && columns.len() > 2 * HOURS_PER_DAY as usize {
        let is_midnight = column.first.is_multiple_of(HOURS_PER_DAY);
        is_midnight.then(|| time::format_hour_as(column.first, "%-d %b"))
    } else if is_hourly {
        from_end.is_multiple_of(every).then(|| time::format_hour_as(column.first, "%H:00"))
    } else {
        from_end.is_multiple_of(every).then(|| time::format_day_as(UtcDay(column.first), "%-d %b"))
    };
    Bar {
        label,
        axis_label: axis_label.unwrap_or_default(),
        admitted: column.count.admitted,
        rejected: column.count.rejected_total(),
    }
}

/// What the chart does not say itself.
fn notes(chart: &BarChart<'_>, is_weekly: bool, is_hourly: bool, is_one_key: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if is_weekly {
        notes.push("Each bar is a week from Monday to Sunday. The CSV and JSON files have every day.".to_owned());
    }
    if is_hourly {
        notes.push(
            "Hours are in UTC. Requests count in the hour in which they were saved, usually within seconds.".to_owned(),
        );
    }
    if let Some(limit) = chart.daily_limit {
        let limit = with_commas(&limit.to_string());
        let whose = if is_one_key { "Daily limit of this key" } else { "Daily limits of all keys together" };
        let place = if chart.shown_limit().is_some() { "the dashed line" } else { "far above these bars" };
        notes.push(format!("{whose}: {limit}, {place}."));
    }
    notes
}

fn key_row(report: &UsageReport, (key, activity): (&KeySummary, &KeyActivity)) -> KeyUsageRow {
    let total = report.total(Some(key.id));
    let used_today = activity.used_today;
    KeyUsageRow {
        id: key.id.to_string(),
        name: key.name.clone(),
        status: key_status(key, *activity),
        used_today,
        daily_limit: key.daily_limit,
        href: format!("/usage?{}", UsageFilter { key: Some(key.id), ..report.filter }.query()),
        admitted: total.admitted,
        rejected: total.rejected_total(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(admitted: u64) -> UsageCount {
        UsageCount { admitted, by_reason: [1, 0, 0, 0, 0, 0] }
    }

    #[test]
    fn weeks_start_on_monday_and_keep_every_request() {
        // 11 November 2026 is a Wednesday.
        let first = time::parse_day("2026-11-11").expect("day is valid").0;
        let days: Vec<_> = (0..10).map(|offset| (first + offset, count(u64::from(offset)))).collect();
        let found: Vec<_> = weeks(&days)
            .iter()
            .map(|week| (week.first - first, week.last - first, week.count.admitted, week.count.rejected_total()))
            .collect();
        assert_eq!(found, [(0, 4, 10, 5), (5, 9, 35, 5)]);
    }

    #[test]
    fn form_keeps_what_was_entered() {
        let parse = |query| form_view(&UsageParams::parse(Some(query)), &[], None);
        let form = parse("range=7d&outcome=burst&key=0123456789");
        assert_eq!(form.range, "7d");
        let current: Vec<_> =
            form.ranges.iter().filter(|link| link.is_current).map(|link| link.href.as_str()).collect();
        assert_eq!(current, ["/usage?range=7d&key=0123456789&outcome=burst"]);
        assert_eq!(form.outcomes.iter().filter(|choice| choice.is_selected).count(), 1);
        let form = parse("from=2026-01-32&to=x");
        assert_eq!((form.from.as_str(), form.to.as_str(), form.range), ("2026-01-32", "x", ""));
        assert!(form.ranges.iter().all(|link| !link.is_current));
    }
}
