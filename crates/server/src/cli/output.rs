//! Output of commands: tables for people, and with `--json` one JSON object per line for scripts.

use std::io::Write;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;

pub(super) fn print_line(text: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}

pub(super) fn print_json(value: &Value) -> Result<()> {
    print_line(&value.to_string())
}

/// Prints the result of a command.
pub(super) fn print_result(json: bool, value: &Value, text: &str) -> Result<()> {
    if json { print_json(value) } else { print_line(text) }
}

pub(super) fn print_warning(text: &str) -> Result<()> {
    Ok(writeln!(std::io::stderr().lock(), "warning: {text}")?)
}

/// Prints columns as wide as their widest cell.
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

/// Prints rows as they come, so without knowing the widest cell.
pub(super) fn print_rows<const N: usize>(rows: &[[String; N]]) -> Result<()> {
    rows.iter().try_for_each(|row| print_line(row.join("  ").trim_end()))
}

/// Unix seconds as `2026-11-15 00:27:43` UTC.
pub(super) fn format_utc(unix_s: i64) -> String {
    format_timestamp(unix_s, "%Y-%m-%d %H:%M:%S")
}

/// Unix seconds as `2026-11-15T00:27:43Z`.
pub(super) fn format_rfc3339(unix_s: i64) -> String {
    format_timestamp(unix_s, "%Y-%m-%dT%H:%M:%SZ")
}

fn format_timestamp(unix_s: i64, format: &str) -> String {
    Timestamp::from_second(unix_s).map_or_else(|_| String::new(), |time| time.strftime(format).to_string())
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
