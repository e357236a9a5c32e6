//! What the usage explorer shows: a range, a key and an outcome, as the query of its URL names them.

use ipseity_domain::{KeyId, UtcDay};

use crate::time::{self, HOURS_PER_DAY};

/// Days for which hours are stored; the minimum of `[retention] hourly_usage_days`.
const HOURLY_DAYS: u32 = 30;
/// A custom range of more days shows days instead of hours.
const HOURLY_RANGE_DAYS_MAX: u32 = 7;
/// Maximum number of days of a range.
const RANGE_DAYS_MAX: u32 = 400;

/// The fields of the form, as they arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageParams {
    pub(crate) range: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) key: String,
    pub(crate) outcome: String,
}

impl UsageParams {
    /// Reads a query. Other parameters are ignored.
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let mut params = Self::default();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let field = match &*name {
                "range" => &mut params.range,
                "from" => &mut params.from,
                "to" => &mut params.to,
                "key" => &mut params.key,
                "outcome" => &mut params.outcome,
                _ => continue,
            };
            *field = value.trim().to_owned();
        }
        params
    }
}

/// Which requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    All,
    Admitted,
    /// The position of the reason in `UsageRow::refused`.
    Refused(usize),
}

impl Outcome {
    /// Each outcome with its name in URLs and its label.
    pub(crate) const NAMES: [(Self, &'static str, &'static str); 8] = [
        (Self::All, "all", "All requests"),
        (Self::Admitted, "admitted", "Successful"),
        (Self::Refused(0), "burst", "Rejected: burst limit"),
        (Self::Refused(1), "paused", "Rejected: while paused"),
        (Self::Refused(2), "inactive", "Rejected: deactivated or expired"),
        (Self::Refused(3), "day", "Rejected: daily quota"),
        (Self::Refused(4), "wrong_secret", "Rejected: invalid secret"),
        (Self::Refused(5), "restricted", "Rejected: restrictions"),
    ];

    /// The name in URLs and files.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(outcome, ..)| *outcome == self).map_or("all", |(_, name, _)| name)
    }

    pub(crate) fn includes_admitted(self) -> bool {
        matches!(self, Self::All | Self::Admitted)
    }

    pub(crate) fn includes_refused(self, reason: usize) -> bool {
        self == Self::All || self == Self::Refused(reason)
    }
}

/// The days or hours of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsageRange {
    /// The last 24 hours, with the current one.
    Hours24,
    Days7,
    Days30,
    Days400,
    /// From the first to the last day.
    Custom(UtcDay, UtcDay),
}

impl UsageRange {
    /// Ranges with a link: name in URLs and label.
    pub(crate) const PRESETS: [(Self, &'static str, &'static str); 4] = [
        (Self::Hours24, "24h", "24 hours"),
        (Self::Days7, "7d", "7 days"),
        (Self::Days30, "30d", "30 days"),
        (Self::Days400, "400d", "400 days"),
    ];

    /// The range and its length, such as `Last 30 days` or `2026-11-01 to 2026-11-05`.
    pub(crate) fn title(self) -> String {
        match self {
            Self::Custom(from, to) if from == to => time::format_day(from),
            Self::Custom(from, to) => format!("{} to {}", time::format_day(from), time::format_day(to)),
            preset @ (Self::Hours24 | Self::Days7 | Self::Days30 | Self::Days400) => {
                let label = Self::PRESETS.iter().find(|(range, ..)| *range == preset).map_or("", |(.., label)| label);
                format!("Last {label}")
            }
        }
    }
}

/// Consecutive hours or days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsageSpan {
    /// Whether the numbers are those of hours, or of days.
    pub(crate) is_hourly: bool,
    /// The first hour or day since 1970.
    pub(crate) first: u32,
    /// The last one.
    pub(crate) last: u32,
}

impl UsageSpan {
    fn hours(first: u32, last: u32) -> Self {
        Self { is_hourly: true, first, last }
    }

    fn days(first: u32, last: u32) -> Self {
        Self { is_hourly: false, first, last }
    }

    /// The day of an hour or a day of the span.
    pub(crate) fn day_of(self, at: u32) -> UtcDay {
        UtcDay(if self.is_hourly { at / HOURS_PER_DAY } else { at })
    }
}

/// What the explorer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsageFilter {
    pub(crate) range: UsageRange,
    pub(crate) key: Option<KeyId>,
    pub(crate) outcome: Outcome,
}

/// Why the parameters are no filter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FilterError {
    /// No account can have a key with this id.
    UnknownKey,
    /// The message for the member.
    Invalid(String),
}

impl UsageFilter {
    /// The last 30 days of a key, or of all.
    pub(crate) fn last_30_days(key: Option<KeyId>) -> Self {
        Self { range: UsageRange::Days30, key, outcome: Outcome::All }
    }

    /// Checks the parameters.
    pub(crate) fn parse(params: &UsageParams, today: UtcDay) -> Result<Self, FilterError> {
        let key = match params.key.as_str() {
            "" => None,
            id => Some(KeyId::parse(id).ok_or(FilterError::UnknownKey)?),
        };
        let outcome = match params.outcome.as_str() {
            "" => Outcome::All,
            text => Outcome::NAMES
                .iter()
                .find(|(_, name, _)| *name == text)
                .map(|(outcome, ..)| *outcome)
                .ok_or_else(|| invalid("Choose an outcome of the list."))?,
        };
        Ok(Self { range: parse_range(params, today)?, key, outcome })
    }

    /// The hours or days to show. Hours for at most 7 days of those whose hours are stored.
    pub(crate) fn span(&self, now_s: u64) -> UsageSpan {
        let hour = time::hour_of(now_s);
        let today = hour / HOURS_PER_DAY;
        match self.range {
            UsageRange::Hours24 => UsageSpan::hours(hour.saturating_sub(HOURS_PER_DAY - 1), hour),
            UsageRange::Days7 => UsageSpan::hours(today.saturating_sub(6) * HOURS_PER_DAY, hour),
            UsageRange::Days30 => UsageSpan::days(today.saturating_sub(29), today),
            UsageRange::Days400 => UsageSpan::days(today.saturating_sub(399), today),
            UsageRange::Custom(from, to) => {
                let is_short = to.0 - from.0 < HOURLY_RANGE_DAYS_MAX;
                if is_short && from.0 + HOURLY_DAYS > today {
                    UsageSpan::hours(from.0 * HOURS_PER_DAY, (to.0 * HOURS_PER_DAY + HOURS_PER_DAY - 1).min(hour))
                } else {
                    UsageSpan::days(from.0, to.0)
                }
            }
        }
    }

    /// The query that shows the same.
    pub(crate) fn query(&self) -> String {
        let mut query = match self.range {
            UsageRange::Custom(from, to) => format!("from={}&to={}", time::format_day(from), time::format_day(to)),
            preset @ (UsageRange::Hours24 | UsageRange::Days7 | UsageRange::Days30 | UsageRange::Days400) => {
                format!("range={}", preset_name(preset))
            }
        };
        if let Some(key) = self.key {
            query.push_str(&format!("&key={key}"));
        }
        if self.outcome != Outcome::All {
            query.push_str(&format!("&outcome={}", self.outcome.name()));
        }
        query
    }
}

/// The name of a preset in URLs; empty for a custom range.
pub(crate) fn preset_name(range: UsageRange) -> &'static str {
    UsageRange::PRESETS.iter().find(|(preset, ..)| *preset == range).map_or("", |(_, name, _)| name)
}

fn parse_range(params: &UsageParams, today: UtcDay) -> Result<UsageRange, FilterError> {
    if params.from.is_empty() && params.to.is_empty() {
        return match params.range.as_str() {
            "" => Ok(UsageRange::Days30),
            text => UsageRange::PRESETS
                .iter()
                .find(|(_, name, _)| *name == text)
                .map(|(range, ..)| *range)
                .ok_or_else(|| invalid("Choose a range of the list, or enter a first and a last day.")),
        };
    }
    if params.from.is_empty() || params.to.is_empty() {
        return Err(invalid("Enter both the first and the last day, or neither."));
    }
    let parse = |text| time::parse_day(text).ok_or_else(|| invalid("Enter days as year, month and day: 2026-11-15."));
    let (from, to) = (parse(&params.from)?, parse(&params.to)?);
    if from > to {
        return Err(invalid("The first day is after the last one. Swap them."));
    }
    if to > today {
        return Err(invalid(&format!("The last day can’t be after today, {} in UTC.", time::format_day(today))));
    }
    if to.0 - from.0 >= RANGE_DAYS_MAX {
        return Err(invalid(&format!(
            "A range has at most {RANGE_DAYS_MAX} days. Choose days that are closer together."
        )));
    }
    Ok(UsageRange::Custom(from, to))
}

fn invalid(message: &str) -> FilterError {
    FilterError::Invalid(message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 15 November 2026.
    const TODAY: UtcDay = UtcDay(20_772);

    fn parse(query: &str) -> Result<UsageFilter, FilterError> {
        UsageFilter::parse(&UsageParams::parse(Some(query)), TODAY)
    }

    fn span(query: &str) -> (bool, u32, u32) {
        let now_s = u64::from(TODAY.0) * 86_400 + 14 * 3_600 + 59;
        let span = parse(query).expect("filter is valid").span(now_s);
        (span.is_hourly, span.last - span.first + 1, span.last)
    }

    #[test]
    fn ranges_end_now_and_show_hours_if_they_are_short() {
        let (hour, day) = (TODAY.0 * 24 + 14, TODAY.0);
        for (query, expected) in [
            ("range=24h", (true, 24, hour)),
            ("range=7d", (true, 6 * 24 + 15, hour)),
            ("", (false, 30, day)),
            ("range=30d&from=&to=", (false, 30, day)),
            ("range=400d", (false, 400, day)),
            ("from=2026-11-15&to=2026-11-15", (true, 15, hour)),
            ("range=24h&from=2026-11-09&to=2026-11-15", (true, 6 * 24 + 15, hour)),
            ("from=2026-10-17&to=2026-10-18", (true, 48, (day - 28) * 24 + 23)),
            ("from=2026-10-16&to=2026-10-18", (false, 3, day - 28)),
            ("from=2026-11-08&to=2026-11-15", (false, 8, day)),
            ("from=2025-10-12&to=2026-11-15", (false, 400, day)),
        ] {
            assert_eq!(span(query), expected, "{query}");
        }
    }

    #[test]
    fn invalid_filters_say_what_to_do() {
        for (query, message) in [
            ("range=31d", "Choose a range"),
            ("outcome=some", "Choose an outcome"),
            ("from=2026-11-01", "Enter both"),
            ("range=7d&to=2026-11-01", "Enter both"),
            ("from=2026-11-31&to=2026-12-01", "Enter days as"),
            ("from=2026-11-01T10:00&to=2026-11-02", "Enter days as"),
            ("from=1969-12-31&to=2026-11-02", "Enter days as"),
            ("from=-9999-01-01&to=2026-11-02", "Enter days as"),
            ("from=2026-11-10&to=2026-11-09", "Swap them"),
            ("from=2026-11-10&to=2026-11-16", "after today, 2026-11-15"),
            ("from=2025-10-11&to=2026-11-15", "at most 400 days"),
        ] {
            match parse(query) {
                Err(FilterError::Invalid(text)) => assert!(text.contains(message), "{query}: {text}"),
                other => panic!("{query}: {other:?}"),
            }
        }
        assert_eq!(parse("key=short"), Err(FilterError::UnknownKey));
    }

    #[test]
    fn query_shows_the_same_filter() {
        for query in [
            "range=24h",
            "range=30d&key=0123456789",
            "from=2026-11-01&to=2026-11-02&key=0123456789&outcome=wrong_secret",
            "range=400d&outcome=admitted",
        ] {
            assert_eq!(parse(query).expect("filter is valid").query(), query);
        }
        assert_eq!(parse("x=1&outcome=all").expect("filter is valid").query(), "range=30d");
    }
}
