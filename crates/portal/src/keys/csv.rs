//! Usage as CSV (RFC 4180).

use std::fmt::Write;

use ipseity_store::{KeySummary, UsageRow};

use crate::time;

const HEADER: &str = "day,key,name,admitted,rejected_burst,rejected_paused,rejected_inactive,rejected_day,rejected_wrong_secret,rejected_restricted\r\n";

/// One line for each key and day with requests, newest first.
pub(crate) fn usage_csv(keys: &[KeySummary], rows: &[UsageRow]) -> String {
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.day), row.key));
    let mut text = HEADER.to_owned();
    for row in rows {
        let name = keys.iter().find(|key| key.id == row.key).map_or("", |key| key.name.as_str());
        let refused = row.refused.map(|count| count.to_string()).join(",");
        let _ = write!(
            text,
            "{},{},{},{},{refused}\r\n",
            time::format_day(row.day),
            row.key,
            quote_cell(name),
            row.admitted
        );
    }
    text
}

/// Characters that start a formula in a spreadsheet. Some programs also accept them in full width, or after a line break.
const FORMULA_STARTS: [char; 11] = ['=', '+', '-', '@', '＝', '＋', '－', '＠', '\t', '\r', '\n'];

/// Quotes a cell, and prevents spreadsheets from reading it as a formula.
fn quote_cell(name: &str) -> String {
    let formula_guard = if name.starts_with(FORMULA_STARTS) { "'" } else { "" };
    format!("\"{formula_guard}{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_cells_are_quoted_and_never_formulas() {
        assert_eq!(quote_cell("web, \"shop\""), "\"web, \"\"shop\"\"\"");
        assert_eq!(quote_cell("1=1"), "\"1=1\"");
        for start in ["=", "+", "-", "@", "\u{ff1d}", "\u{ff0b}", "\u{ff0d}", "\u{ff20}", "\t=", "\r=", "\n="] {
            assert_eq!(quote_cell(&format!("{start}1+1")), format!("\"'{start}1+1\""));
        }
    }
}
