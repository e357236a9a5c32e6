//! Template filters.

use std::fmt::Display;

/// Formats a whole number with thousands separators: `1,234,567`.
#[askama::filter_fn]
pub(crate) fn thousands(number: impl Display, _: &dyn askama::Values) -> askama::Result<String> {
    let digits = number.to_string();
    Ok(with_commas(&digits))
}

/// Capitalizes the first letter.
#[askama::filter_fn]
pub(crate) fn uppercase_first(word: impl Display, _: &dyn askama::Values) -> askama::Result<String> {
    let word = word.to_string();
    let mut characters = word.chars();
    Ok(characters.next().map_or(String::new(), |first| first.to_uppercase().chain(characters).collect()))
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
    fn thousands_are_separated_by_commas() {
        for (digits, expected) in [("0", "0"), ("999", "999"), ("1000", "1,000"), ("1234567", "1,234,567")] {
            assert_eq!(with_commas(digits), expected);
        }
    }
}
