//! Formats times and days for people, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use ipseity_domain::{DAY_S, UtcDay};
use jiff::Timestamp;

/// Unix time in seconds by this machine's clock. Only pages use it; limits use the clock of Redis.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

/// Today by this machine's clock.
pub(crate) fn today() -> UtcDay {
    UtcDay(u32::try_from(now_s() / DAY_S).unwrap_or(u32::MAX))
}

/// `15 Nov 2026`
pub(crate) fn format_date(unix_s: i64) -> String {
    format_utc(unix_s, "%-d %b %Y")
}

/// `15 Nov 2026, 14:03 UTC`
pub(crate) fn format_minute(unix_s: i64) -> String {
    format_utc(unix_s, "%-d %b %Y, %H:%M UTC")
}

/// `15 Nov 2026, 14:03:22 UTC`
pub(crate) fn format_second(unix_s: i64) -> String {
    format_utc(unix_s, "%-d %b %Y, %H:%M:%S UTC")
}

/// `2026-11-15T14:03:22Z`
pub(crate) fn format_rfc3339(unix_s: i64) -> String {
    format_utc(unix_s, "%Y-%m-%dT%H:%M:%SZ")
}

/// `2026-11-15T14:03`, as an input for a date and a time has it. With seconds, unless they are 0.
pub(crate) fn format_date_time_input(unix_s: u64) -> String {
    let format = if unix_s.is_multiple_of(60) { "%Y-%m-%dT%H:%M" } else { "%Y-%m-%dT%H:%M:%S" };
    format_utc(i64::try_from(unix_s).unwrap_or(i64::MAX), format)
}

/// `2026-11-15`
pub(crate) fn format_day(day: UtcDay) -> String {
    format_utc(i64::from(day.0) * i64::try_from(DAY_S).unwrap_or(i64::MAX), "%Y-%m-%d")
}

/// Formats a day such as `2026-11-15` as `today`, `yesterday` or a date.
pub(crate) fn format_recent_day(text: &str, today: UtcDay) -> String {
    if text == format_day(today) {
        return "today".to_owned();
    }
    if text == format_day(UtcDay(today.0.saturating_sub(1))) {
        return "yesterday".to_owned();
    }
    text.parse::<jiff::civil::Date>().map_or_else(|_| text.to_owned(), |date| date.strftime("%-d %b %Y").to_string())
}

/// Formats the time until an event: `in 5 h 12 min`. `app.js` counts it down.
pub(crate) fn format_remaining(seconds: u64) -> String {
    let minutes = seconds.div_ceil(60);
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("in {minutes} min"),
        (hours, 0) => format!("in {hours} h"),
        (hours, minutes) => format!("in {hours} h {minutes} min"),
    }
}

fn format_utc(unix_s: i64, format: &str) -> String {
    Timestamp::from_second(unix_s).map_or_else(|_| String::new(), |time| time.strftime(format).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_days_are_formatted() {
        assert_eq!(format_date(1_794_700_000), "14 Nov 2026");
        assert_eq!(format_minute(1_794_700_000), "14 Nov 2026, 23:46 UTC");
        assert_eq!(format_second(1_794_700_000), "14 Nov 2026, 23:46:40 UTC");
        assert_eq!(format_date_time_input(1_794_700_000), "2026-11-14T23:46:40");
        assert_eq!(format_date_time_input(1_794_699_960), "2026-11-14T23:46");
        assert_eq!(format_day(UtcDay(20_772)), "2026-11-15");
        let recent_day = |text| format_recent_day(text, UtcDay(20_772));
        assert_eq!(
            [0, 1, 60, 3600, 18_720].map(format_remaining),
            ["in 0 min", "in 1 min", "in 1 min", "in 1 h", "in 5 h 12 min"]
        );
        assert_eq!((recent_day("2026-11-15").as_str(), recent_day("2026-11-14").as_str()), ("today", "yesterday"));
        assert_eq!(recent_day("2026-11-03"), "3 Nov 2026");
    }
}
