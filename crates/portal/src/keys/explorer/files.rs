//! The files of the usage explorer: CSV and JSON with the rows that the page sums up.

use std::fmt::Write;

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde_json::{Value, json};

use crate::keys::csv::{csv_attachment, quote_cell};
use crate::keys::explorer::filter::{Outcome, UsageSpan};
use crate::keys::explorer::report::{ReportRow, UsageReport};
use crate::keys::usage_count::UsageCount;
use crate::time;

/// The columns of rejections, in the order of `UsageRow::refused`.
const REJECTED: [&str; 6] = [
    "rejected_burst",
    "rejected_paused",
    "rejected_inactive",
    "rejected_day",
    "rejected_wrong_secret",
    "rejected_restricted",
];

/// The columns that an outcome has, with their numbers.
fn columns(outcome: Outcome, count: &UsageCount) -> Vec<(&'static str, u64)> {
    let admitted = outcome.includes_admitted().then_some(("admitted", count.admitted));
    let refused = REJECTED.into_iter().zip(count.by_reason).enumerate();
    let refused = refused.filter(|(reason, _)| outcome.includes_refused(*reason)).map(|(_, column)| column);
    admitted.into_iter().chain(refused).collect()
}

/// The column of times, and the time of a row: `2026-11-15` or `2026-11-15T14:00Z`.
fn time_column(span: UsageSpan) -> &'static str {
    if span.is_hourly { "hour" } else { "day" }
}

fn format_time(span: UsageSpan, at: u32) -> String {
    if span.is_hourly { time::format_hour(at) } else { time::format_day(span.day_of(at)) }
}

fn file_name(report: &UsageReport, extension: &str) -> String {
    report
        .filter
        .key
        .map_or_else(|| format!("ipseity-usage.{extension}"), |key| format!("ipseity-usage-{key}.{extension}"))
}

/// One line for each key and hour or day with requests, newest first.
pub(super) fn csv(report: &UsageReport) -> Response {
    csv_attachment(&file_name(report, "csv"), csv_text(report))
}

fn csv_text(report: &UsageReport) -> String {
    let header = columns(report.filter.outcome, &UsageCount::default()).into_iter().map(|(name, _)| name);
    let header: Vec<_> = [time_column(report.span), "key", "name"].into_iter().chain(header).collect();
    let mut text = format!("{}\r\n", header.join(","));
    for row in &report.rows {
        let counts = columns(report.filter.outcome, &row.count).into_iter().map(|(_, count)| count.to_string());
        let counts: Vec<_> = counts.collect();
        let (at, name) = (format_time(report.span, row.at), quote_cell(report.key_name(row.key)));
        let _ = write!(text, "{at},{},{name},{}\r\n", row.key, counts.join(","));
    }
    text
}

/// The same rows as JSON.
pub(super) fn json(report: &UsageReport) -> Response {
    let disposition = format!("attachment; filename=\"{}\"", file_name(report, "json"));
    let headers = [(CONTENT_TYPE, "application/json".to_owned()), (CONTENT_DISPOSITION, disposition)];
    (headers, json_text(report)).into_response()
}

/// Written as text, because a tree of thousands of values would take most of the time.
fn json_text(report: &UsageReport) -> String {
    let (span, outcome) = (report.span, report.filter.outcome);
    let head = json!({
        "granularity": time_column(span),
        "from": format_time(span, span.first),
        "to": format_time(span, span.last),
        "key": report.filter.key.map(|key| key.to_string()),
        "outcome": outcome.name(),
    });
    let to_row = |row: &ReportRow| {
        let (at, name) = (format_time(span, row.at), Value::from(report.key_name(row.key)));
        let mut text = format!("{{\"{}\":\"{at}\",\"key\":\"{}\",\"name\":{name}", time_column(span), row.key);
        for (column, count) in columns(outcome, &row.count) {
            let _ = write!(text, ",\"{column}\":{count}");
        }
        text + "}"
    };
    let rows: Vec<_> = report.rows.iter().map(to_row).collect();
    format!("{},\"rows\":[{}]}}", head.to_string().trim_end_matches('}'), rows.join(","))
}
