//! Formats times and days for people, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use ipseity_domain::{DAY_S, UtcDay};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// Hours of a day in UTC.
pub(crate) const HOURS_PER_DAY: u32 = 24;
/// Characters of a day such as `2026-11-15`.
const DAY_CHARS: usize = 10;
const HOUR_S: u64 = 3600;

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

/// `2026-11-15T14:03Z` for a time that `format_minute` or `format_second` formatted.
pub(crate) fn machine_readable(text: &str) -> Option<String> {
    let formats = [("%d %b %Y, %H:%M UTC", "%Y-%m-%dT%H:%MZ"), ("%d %b %Y, %H:%M:%S UTC", "%Y-%m-%dT%H:%M:%SZ")];
    formats.into_iter().find_map(|(shown, readable)| {
        let time = jiff::civil::DateTime::strptime(shown, text).ok()?;
        Some(time.strftime(readable).to_string())
    })
}

/// `2026-11-15T14:03`, as an input for a date and a time has it. With seconds, unless they are 0.
pub(crate) fn format_date_time_input(unix_s: u64) -> String {
    let format = if unix_s.is_multiple_of(60) { "%Y-%m-%dT%H:%M" } else { "%Y-%m-%dT%H:%M:%S" };
    format_utc(i64::try_from(unix_s).unwrap_or(i64::MAX), format)
}

/// `2026-11-15`
pub(crate) fn format_day(day: UtcDay) -> String {
    format_day_as(day, "%Y-%m-%d")
}

/// Formats a day.
pub(crate) fn format_day_as(day: UtcDay, format: &str) -> String {
    format_utc(i64::from(day.0) * i64::try_from(DAY_S).unwrap_or(i64::MAX), format)
}

/// Parses `2026-11-15`. `None` for days before 1970.
pub(crate) fn parse_day(text: &str) -> Option<UtcDay> {
    let date: Date = (text.len() == DAY_CHARS).then(|| text.parse().ok())??;
    let midnight_s = date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second();
    u32::try_from(midnight_s / i64::try_from(DAY_S).ok()?).ok().map(UtcDay).filter(|_| midnight_s >= 0)
}

/// The hour since 1970.
pub(crate) fn hour_of(unix_s: u64) -> u32 {
    u32::try_from(unix_s / HOUR_S).unwrap_or(u32::MAX)
}

/// `2026-11-15T14:00Z`
pub(crate) fn format_hour(hour: u32) -> String {
    format_hour_as(hour, "%Y-%m-%dT%H:00Z")
}

/// Formats an hour since 1970.
pub(crate) fn format_hour_as(hour: u32, format: &str) -> String {
    format_utc(i64::from(hour) * i64::try_from(HOUR_S).unwrap_or(i64::MAX), format)
}

/// Formats a day such as `2026-11-15` as `today`, `yesterday` or a date.
pub(crate) fn format_recent_day(text: &str, today: UtcDay) -> String {
    if text == format_day(today) {
        return "today".to_owned();
    }
    if text == format_day(UtcDay(today.0.saturating_sub(1))) {
        return "yesterday".to_owned();
    }
    text.parse::<Date>().map_or_else(|_| text.to_owned(), |date| date.strftime("%-d %b %Y").to_string())
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
        for (unix_s, minute, second) in [
            (1_794_700_000, "2026-11-14T23:46Z", "2026-11-14T23:46:40Z"),
            (1_788_418_800, "2026-09-03T07:00Z", "2026-09-03T07:00:00Z"),
        ] {
            assert_eq!(machine_readable(&format_minute(unix_s)).as_deref(), Some(minute));
            assert_eq!(machine_readable(&format_second(unix_s)).as_deref(), Some(second));
        }
        assert_eq!(["today", "", "3 Sep 2026"].map(machine_readable), [None, None, None]);
        assert_eq!(format_date_time_input(1_794_700_000), "2026-11-14T23:46:40");
        assert_eq!(format_date_time_input(1_794_699_960), "2026-11-14T23:46");
        assert_eq!(format_day(UtcDay(20_772)), "2026-11-15");
        assert_eq!(format_hour(20_772 * 24 + 5), "2026-11-15T05:00Z");
        assert_eq!(hour_of(1_794_700_000), 498_527);
        for (text, day) in [
            ("2026-11-15", Some(UtcDay(20_772))),
            ("1970-01-01", Some(UtcDay(0))),
            ("1969-12-31", None),
            ("2026-02-29", None),
            ("2026-11-15T00:00", None),
            ("20261115", None),
        ] {
            assert_eq!(parse_day(text), day, "{text}");
        }
        let recent_day = |text| format_recent_day(text, UtcDay(20_772));
        assert_eq!(
            [0, 1, 60, 3600, 18_720].map(format_remaining),
            ["in 0 min", "in 1 min", "in 1 min", "in 1 h", "in 5 h 12 min"]
        );
        assert_eq!((recent_day("2026-11-15").as_str(), recent_day("2026-11-14").as_str()), ("today", "yesterday"));
        assert_eq!(recent_day("2026-11-03"), "3 Nov 2026");
    }
}
