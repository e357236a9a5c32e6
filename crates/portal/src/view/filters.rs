//! Template filters.

use std::fmt::Display;

use askama::filters::Safe;

use crate::html::escape_html;
use crate::time::machine_readable;

/// Formats a whole number with thousands separators: `1,234,567`.
#[askama::filter_fn]
pub(crate) fn thousands(number: impl Display, _: &dyn askama::Values) -> askama::Result<String> {
    let digits = number.to_string();
    Ok(with_commas(&digits))
}

/// Capitalizes the first letter.
#[askama::filter_fn]
pub(crate) fn uppercase_first(word: impl Display, _: &dyn askama::Values) -> askama::Result<String> {
    Ok(capitalize(&word.to_string()))
}

/// Capitalizes the first letter.
pub(crate) fn capitalize(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or(String::new(), |first| first.to_uppercase().chain(characters).collect())
}

/// Marks a time such as `15 Nov 2026, 14:03 UTC`, which may follow a word. `local_time.js` shows it in the reader's time zone.
#[askama::filter_fn]
pub(crate) fn utc_time(text: impl Display, _: &dyn askama::Values) -> askama::Result<Safe<String>> {
    Ok(Safe(time_to_html(&text.to_string())))
}

fn time_to_html(text: &str) -> String {
    let mut parts = [Some(("", text)), text.split_once(' ')].into_iter().flatten();
    let found = parts.find_map(|(word, time)| Some((word, time, machine_readable(time)?)));
    let Some((word, time, datetime)) = found else { return escape_html(text) };
    let separator = if word.is_empty() { "" } else { " " };
    format!("{}{separator}<time datetime=\"{datetime}\">{time}</time>", escape_html(word))
}

/// Escapes text for HTML, and shows what is between backticks as code.
#[askama::filter_fn]
pub(crate) fn inline_code(text: impl Display, _: &dyn askama::Values) -> askama::Result<Safe<String>> {
    Ok(Safe(code_to_html(&text.to_string())))
}

fn code_to_html(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    let last = parts.len() - 1;
    let to_html = |(index, part): (usize, &&str)| {
        let escaped = escape_html(part);
        match index {
            _ if index % 2 == 0 => escaped,
            // A backtick without its counterpart.
            _ if index == last => format!("`{escaped}"),
            _ => format!("<code>{escaped}</code>"),
        }
    };
    parts.iter().enumerate().map(to_html).collect()
}

/// Separates digits into groups of three.
pub(crate) fn with_commas(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_between_backticks_is_code() {
        for (text, html) in [
            ("Always `success`.", "Always <code>success</code>."),
            ("`a` or `<b>` & c", "<code>a</code> or <code>&lt;b&gt;</code> &amp; c"),
            ("a ` b", "a ` b"),
            ("", ""),
        ] {
            assert_eq!(code_to_html(text), html);
        }
    }

    #[test]
    fn times_are_marked_and_other_text_is_escaped() {
        let marked = "<time datetime=\"2026-11-03T14:03Z\">3 Nov 2026, 14:03 UTC</time>";
        assert_eq!(time_to_html("3 Nov 2026, 14:03 UTC"), marked);
        assert_eq!(time_to_html("Expires 3 Nov 2026, 14:03 UTC"), format!("Expires {marked}"));
        for (text, html) in [("today", "today"), ("<b> soon", "&lt;b&gt; soon"), ("", "")] {
            assert_eq!(time_to_html(text), html);
        }
    }

    #[test]
    fn thousands_are_separated_by_commas() {
        for (digits, expected) in [("0", "0"), ("999", "999"), ("1000", "1,000"), ("1234567", "1,234,567")] {
            assert_eq!(with_commas(digits), expected);
        }
    }
}
