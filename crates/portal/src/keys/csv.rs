//! CSV files (RFC 4180): their cells and their response.

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};

/// Characters that start a formula in a spreadsheet. Some programs also accept them in full width, or after a line break.
const FORMULA_STARTS: [char; 11] = ['=', '+', '-', '@', '＝', '＋', '－', '＠', '\t', '\r', '\n'];

/// A response that browsers save as a file.
pub(crate) fn csv_attachment(file_name: &str, text: String) -> Response {
    let disposition = format!("attachment; filename=\"{file_name}\"");
    ([(CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()), (CONTENT_DISPOSITION, disposition)], text).into_response()
}

/// Quotes a cell, and prevents spreadsheets from reading it as a formula.
pub(crate) fn quote_cell(name: &str) -> String {
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
