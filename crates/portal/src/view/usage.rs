//! Usage: totals, a chart of 30 days and a table.

use askama::Template;

use crate::view::chart::usage_bar;
use crate::view::filters;
use crate::view::frame::PageFrame;
use crate::view::key_badge::KeyBadge;

/// The usage of one day.
pub(crate) struct UsageDayRow {
    /// Such as `2026-11-15`.
    pub(crate) day: String,
    pub(crate) admitted: u64,
    pub(crate) rejected: u64,
    /// Rejected by reason: burst limit, while paused, deactivated, daily quota, invalid secret, restrictions.
    pub(crate) by_reason: [u64; 6],
}

/// The usage of one key, or of all keys.
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
    pub(crate) badge: KeyBadge,
    pub(crate) used_today: u64,
    pub(crate) daily_limit: u64,
    pub(crate) admitted: u64,
    pub(crate) rejected: u64,
}

impl KeyUsageRow {
    /// Today's usage as a bar, in SVG.
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
