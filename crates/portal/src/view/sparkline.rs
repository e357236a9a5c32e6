//! A small chart without axes, in SVG. Its title says the numbers.

use std::fmt::Write;

use crate::view::filters::with_commas;

/// Minimum height of a bar for a number above zero, in percent.
const VISIBLE_PERCENT_MIN: u64 = 6;

/// A bar for each day, oldest first: one path with a stroke per day, because a list has many charts.
pub(crate) fn sparkline(days: &[u64]) -> String {
    let highest = days.iter().copied().max().unwrap_or(0);
    let total = days.iter().fold(0_u64, |total, count| total.saturating_add(*count));
    let text = match total {
        0 => format!("No requests in {} days", days.len()),
        _ => format!(
            "{} requests in {} days, at most {} in one day",
            with_commas(&total.to_string()),
            days.len(),
            with_commas(&highest.to_string())
        ),
    };
    let mut path = String::new();
    for (day, &count) in days.iter().enumerate().filter(|(_, count)| **count > 0) {
        let percent = u128::from(count) * 100 / u128::from(highest);
        let top = 100 - percent.clamp(u128::from(VISIBLE_PERCENT_MIN), 100);
        write!(path, "M{day}.5 100V{top}").expect("writing to a String never fails");
    }
    format!(
        "<svg class=\"sparkline\" viewBox=\"0 0 {} 100\" preserveAspectRatio=\"none\" role=\"img\"><title>{text}</title><path d=\"{path}\"/></svg>",
        days.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparkline_has_a_bar_for_each_day_with_requests_and_says_the_numbers() {
        let svg = sparkline(&[0, 1_000, 1, 500]);
        assert!(svg.contains("<path d=\"M1.5 100V0M2.5 100V94M3.5 100V50\"/>"), "{svg}");
        assert!(
            svg.contains("role=\"img\"><title>1,501 requests in 4 days, at most 1,000 in one day</title>"),
            "{svg}"
        );
        assert!(svg.contains("viewBox=\"0 0 4 100\"") && !svg.contains("style="), "{svg}");
    }

    #[test]
    fn sparkline_without_requests_or_with_huge_numbers_is_valid() {
        let none = sparkline(&[0; 30]);
        assert!(none.contains("<title>No requests in 30 days</title><path d=\"\"/>"), "{none}");
        let huge = sparkline(&[u64::MAX, u64::MAX]);
        assert!(huge.contains("M0.5 100V0M1.5 100V0") && !huge.contains("NaN"), "{huge}");
    }
}
