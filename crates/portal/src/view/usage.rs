//! Usage: numbers, a chart of 30 days, and the same as a table.

use askama::Template;

use crate::view::chart::usage_bar;
use crate::view::{PageFrame, filters};

/// One day.
pub(crate) struct UsageDayRow {
    /// Such as `2026-11-15`.
    pub(crate) day: String,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    /// Refused by reason: paused now (burst), while paused, inactive, day spent, wrong secret.
    pub(crate) by_reason: [u64; 5],
}

/// The use of one key, or of all.
pub(crate) struct UsageView {
    pub(crate) today_admitted: u64,
    pub(crate) today_refused: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    /// Refused in 30 days, by reason, as in [`DayRow::by_reason`].
    pub(crate) by_reason: [u64; 5],
    /// Bars of 30 days, as SVG.
    pub(crate) chart: String,
    /// 30 days, newest first.
    pub(crate) days: Vec<UsageDayRow>,
}

/// One key's line on the usage page.
pub(crate) struct KeyUsageRow {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) state: &'static str,
    pub(crate) used_today: u64,
    pub(crate) daily_limit: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
}

impl KeyUsageRow {
    /// Today's use as a bar, as SVG.
    fn usage_bar(&self) -> String {
        usage_bar(self.used_today, self.daily_limit)
    }
}

/// `/usage`
#[derive(Template)]
#[template(path = "usage.html")]
pub(crate) struct UsagePage {
    pub(crate) frame: PageFrame,
    pub(crate) total: UsageView,
    pub(crate) keys: Vec<KeyUsageRow>,
}
