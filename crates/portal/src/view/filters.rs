//! How numbers and words are written on the pages.

use std::fmt::Display;

/// A whole number with its thousands apart: `1,234,567`.
#[askama::filter_fn]
pub(crate) fn thousands(number: impl Display, _: &dyn askama::Values) -> askama::Result<String> {
    let digits = number.to_string();
    Ok(with_commas(&digits))
}

/// A word with a capital letter first.
#[askama::filter_fn]
pub(crate) fn uppercase_first(word: impl Display, _: &dyn askama::Values) -> askama::Result<String> {
    let word = word.to_string();
    let mut characters = word.chars();
    Ok(characters.next().map_or(String::new(), |first| first.to_uppercase().chain(characters).collect()))
}

/// Digits in groups of three.
pub(super) fn with_commas(digits: &str) -> String {
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
    fn thousands_are_separated_by_commas() {
        for (digits, expected) in [("0", "0"), ("999", "999"), ("1000", "1,000"), ("1234567", "1,234,567")] {
            assert_eq!(with_commas(digits), expected);
        }
    }
}
