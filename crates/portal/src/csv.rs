//! Usage as CSV (RFC 4180).

use std::fmt::Write;

use store::{KeyRow, UsageRow};

use crate::time;

const HEAD: &str =
    "day,key,name,admitted,refused_burst,refused_paused,refused_inactive,refused_day,refused_wrong_secret\r\n";

/// A line for each key and day on which something happened, newest first.
pub(crate) fn usage(keys: &[KeyRow], rows: &[UsageRow]) -> String {
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.day), row.key));
    let mut text = HEAD.to_owned();
    for row in rows {
        let name = keys.iter().find(|key| key.id == row.key).map_or("", |key| key.name.as_str());
        let refused = row.refused.map(|count| count.to_string()).join(",");
        let _ = write!(text, "{},{},{},{},{refused}\r\n", time::day(row.day), row.key, cell(name), row.admitted);
    }
    text
}

/// A name as a cell: quoted, and never read as a formula by a spreadsheet.
fn cell(name: &str) -> String {
    let guard = if name.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    format!("\"{guard}{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_quoted_and_never_a_formula() {
        assert_eq!(cell("web, \"shop\""), "\"web, \"\"shop\"\"\"");
        assert_eq!(cell("=1+1"), "\"'=1+1\"");
    }
}
