//! What commands print: tables for people, JSON for scripts.

use std::io::Write;

use anyhow::Result;
use serde_json::Value;

pub(super) fn print_line(text: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}

pub(super) fn print_json(value: &Value) -> Result<()> {
    print_line(&value.to_string())
}

pub(super) fn print_warning(text: &str) -> Result<()> {
    Ok(writeln!(std::io::stderr().lock(), "warning: {text}")?)
}

/// Columns as wide as their widest cell.
pub(super) fn print_table<const N: usize>(columns: [&str; N], rows: &[[String; N]]) -> Result<()> {
    let mut widths = columns.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let format_row = |cells: &[String; N]| {
        let padded: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    print_line(&format_row(&columns.map(str::to_owned)))?;
    rows.iter().try_for_each(|row| print_line(&format_row(row)))
}

/// Unix seconds as `2026-11-15 00:27:43` UTC.
pub(super) fn format_utc(unix_s: i64) -> String {
    let (days, second) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// Unix seconds as scripts read them: `2026-11-15T00:27:43Z`.
pub(super) fn format_rfc3339(unix_s: i64) -> String {
    format!("{}Z", format_utc(unix_s).replace(' ', "T"))
}

/// The date of a day since 1970-01-01, by counting in eras of 400 years that begin on a first of March.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_formatted_in_utc() {
        assert_eq!(format_utc(0), "1970-01-01 00:00:00");
        assert_eq!(format_utc(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(format_utc(1_794_702_463), "2026-11-15 00:27:43");
        assert_eq!(format_rfc3339(1_794_702_463), "2026-11-15T00:27:43Z");
    }
}
