//! Usage: totals, charts and tables.

use askama::Template;
use ipseity_domain::KeyStatus;

use crate::view::chart::usage_bar;
use crate::view::filters;
use crate::view::frame::PageFrame;
use crate::view::style_class::StyleClass;

/// The usage of one day, or of an hour or a week in the explorer.
pub(crate) struct UsageDayRow {
    /// Such as `2026-11-15`.
    pub(crate) day: String,
    pub(crate) admitted: u64,
    pub(crate) rejected: u64,
    /// Rejected by reason: burst limit, while paused, deactivated, daily quota, invalid secret, restrictions.
    pub(crate) by_reason: [u64; 6],
}

/// The usage of one key.
pub(crate) struct UsageView {
    pub(crate) today_admitted: u64,
    pub(crate) today_rejected: u64,
    pub(crate) admitted: u64,
    pub(crate) rejected: u64,
    /// Rejected in 30 days, in the order of [`UsageDayRow::by_reason`].
    pub(crate) by_reason: [u64; 6],
    /// Chart of 30 days, in SVG.
    pub(crate) chart: String,
    /// 30 days, newest first.
    pub(crate) days: Vec<UsageDayRow>,
}

/// A key in the table of the usage page.
pub(crate) struct KeyUsageRow {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: KeyStatus,
    pub(crate) used_today: u64,
    pub(crate) daily_limit: u64,
    /// The same page with only this key.
    pub(crate) href: String,
    pub(crate) admitted: u64,
    pub(crate) rejected: u64,
}

impl KeyUsageRow {
    /// Today's usage as a bar, in SVG.
    fn usage_bar(&self) -> String {
        usage_bar(self.used_today, self.daily_limit)
    }
}

/// A link to a range.
pub(crate) struct RangeLink {
    pub(crate) id: &'static str,
    pub(crate) label: &'static str,
    pub(crate) href: String,
    pub(crate) is_current: bool,
}

/// An option of a select element.
pub(crate) struct Choice {
    pub(crate) value: String,
    pub(crate) label: String,
    pub(crate) is_selected: bool,
}

/// What the explorer shows, and what it can show.
pub(crate) struct UsageForm {
    pub(crate) ranges: Vec<RangeLink>,
    /// Name of the current range; empty for entered days.
    pub(crate) range: &'static str,
    /// The first and the last day, as entered.
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) today: String,
    pub(crate) keys: Vec<Choice>,
    pub(crate) outcomes: Vec<Choice>,
    pub(crate) error: Option<String>,
}

/// The numbers of the explorer.
pub(crate) struct UsageReportView {
    /// Such as `Last 30 days`.
    pub(crate) title: String,
    /// `hour`, `day` or `week`: what a bar shows.
    pub(crate) unit: &'static str,
    /// The query of this page and its files.
    pub(crate) query: String,
    /// ID and name of the selected key.
    pub(crate) selected_key: Option<(String, String)>,
    pub(crate) shows_admitted: bool,
    pub(crate) shows_rejected: bool,
    /// Whether rejections have any reason.
    pub(crate) shows_reasons: bool,
    pub(crate) admitted: u64,
    pub(crate) rejected: u64,
    /// In the order of [`UsageDayRow::by_reason`].
    pub(crate) by_reason: [u64; 6],
    /// Chart in SVG.
    pub(crate) chart: String,
    pub(crate) has_limit_line: bool,
    pub(crate) notes: Vec<String>,
    /// The numbers of the bars, newest first.
    pub(crate) rows: Vec<UsageDayRow>,
    /// All keys of the account.
    pub(crate) keys: Vec<KeyUsageRow>,
    /// Version of the list of keys.
    pub(crate) version: String,
}

/// `/usage`
#[derive(Template)]
#[template(path = "usage.html")]
pub(crate) struct UsagePage {
    pub(crate) frame: PageFrame,
    pub(crate) form: UsageForm,
    /// `None` if the form is invalid.
    pub(crate) report: Option<UsageReportView>,
}
