//! Charts in SVG. Lengths are percentages, so that bars scale with the page and text does not.
//!
//! Colors come from the stylesheet by class, for light and dark mode.

use std::fmt::Write;

use ipseity_domain::LimitLevel;
use jiff::civil::Date;

use crate::html::escape_html;
use crate::view::filters::with_commas;
use crate::view::style_class::StyleClass;

/// Seconds per row of the table below the pause chart.
const SECONDS_PER_ROW: usize = 10;
/// Minimum size of a bar for a number above zero, in percent.
const VISIBLE_PERCENT_MIN: f64 = 1.2;

macro_rules! push_fmt {
    ($text:expr, $($piece:tt)+) => {
        write!($text, $($piece)+).expect("writing to a String never fails")
    };
}
pub(super) use push_fmt;

/// Chart and table of the 60 seconds before a pause, oldest first.
///
/// A list may show ten of them, so the SVG is kept small: one path, with a stroke for each second.
pub(crate) fn pause_chart(counts: &[u16]) -> String {
    let total: u64 = counts.iter().map(|&count| u64::from(count)).sum();
    let peak = counts.iter().copied().max().unwrap_or(0);
    let scale = ChartScale::covering(u64::from(peak));
    let seconds = counts.len();
    let numbers: Vec<String> = counts.iter().map(u16::to_string).collect();
    let mut svg = open_svg(
        &format!("class=\"chart seconds\" data-counts=\"{}\"", numbers.join(",")),
        &format!("Requests in each of the {seconds} seconds before the pause"),
        &format!("{} in total, {} in the busiest second.", format_count(total), format_count(u64::from(peak))),
    );
    scale.draw_grid(&mut svg);
    push_fmt!(svg, "<svg class=\"bars\" viewBox=\"0 0 {seconds} 100\" preserveAspectRatio=\"none\">");
    svg.push_str("<path d=\"");
    for (second, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        push_fmt!(svg, "M{second}.5 100V{:.0}", 100.0 - scale.height(u64::from(count)));
    }
    svg.push_str("\"/></svg>");
    axis_label(&mut svg, 0.0, "start", &format!("−{seconds} s"));
    axis_label(&mut svg, 50.0, "middle", &format!("−{} s", seconds / 2));
    axis_label(&mut svg, 100.0, "end", "pause");
    svg.push_str("</svg>");
    pause_table(&mut svg, counts);
    svg
}

fn pause_table(html: &mut String, counts: &[u16]) {
    html.push_str("<details class=\"disclosure\"><summary>Requests per second</summary><table>");
    for (row, numbers) in counts.chunks(SECONDS_PER_ROW).enumerate() {
        let from = counts.len() - row * SECONDS_PER_ROW;
        let to = from - numbers.len() + 1;
        let numbers: Vec<String> = numbers.iter().map(|count| format!("{count:>3}")).collect();
        push_fmt!(html, "<tr><th scope=\"row\">−{from} to −{to} s</th><td>{}</td></tr>", numbers.join(" "));
    }
    html.push_str("</table></details>");
}

/// A bar of today's usage and the daily limit. The page shows the numbers next to it.
pub(crate) fn usage_bar(used: u64, limit: u64) -> String {
    let fraction = if limit == 0 { 1.0 } else { (used as f64 / limit as f64).min(1.0) };
    let level = LimitLevel::of(used, limit).class();
    let width = if used == 0 { 0.0 } else { (fraction * 100.0).max(VISIBLE_PERCENT_MIN) };
    format!(
        "<svg class=\"usage-bar {level}\" aria-hidden=\"true\"><rect width=\"{width:.1}%\" height=\"100%\" rx=\"3\"/></svg>"
    )
}

/// The vertical axis: from zero to a round number, in equal steps.
pub(super) struct ChartScale {
    pub(super) max: u64,
    step: u64,
}

impl ChartScale {
    /// The smallest round scale of at most five steps that covers a number.
    pub(super) fn covering(highest: u64) -> Self {
        let highest = highest.max(4);
        let mut power_of_ten: u64 = 1;
        let step = loop {
            let candidate =
                [1, 2, 5].into_iter().map(|digit| digit * power_of_ten).find(|step| step.saturating_mul(5) >= highest);
            match candidate {
                Some(step) => break step,
                None => power_of_ten *= 10,
            }
        };
        Self { max: highest.div_ceil(step) * step, step }
    }

    pub(super) fn height(&self, count: u64) -> f64 {
        if count == 0 { 0.0 } else { (count as f64 / self.max as f64 * 100.0).max(VISIBLE_PERCENT_MIN) }
    }

    pub(super) fn draw_grid(&self, svg: &mut String) {
        for tick in (0..=self.max).step_by(usize::try_from(self.step).unwrap_or(usize::MAX)) {
            let y = 100.0 - tick as f64 / self.max as f64 * 100.0;
            let class = if tick == 0 { "axis" } else { "grid" };
            push_fmt!(svg, "<line class=\"{class}\" x2=\"100%\" y1=\"{y:.2}%\" y2=\"{y:.2}%\"/>");
            push_fmt!(
                svg,
                "<text x=\"-8\" y=\"{y:.2}%\" dy=\"4\" text-anchor=\"end\">{}</text>",
                format_axis_number(tick)
            );
        }
    }
}

/// Opens a chart. `charts.js` reads the numbers of its columns from `data-counts` or from the titles of groups.
pub(super) fn open_svg(attributes: &str, title: &str, desc: &str) -> String {
    format!("<svg {attributes} role=\"img\"><title>{title}</title><desc>{desc}</desc>")
}

pub(super) fn axis_label(svg: &mut String, x: f64, anchor: &str, text: &str) {
    push_fmt!(svg, "<text x=\"{x:.2}%\" y=\"100%\" dy=\"20\" text-anchor=\"{anchor}\">{}</text>", escape_html(text));
}

pub(super) fn format_count(number: u64) -> String {
    with_commas(&number.to_string())
}

/// Formats a number of an axis: `20k`, `1.5M`.
fn format_axis_number(number: u64) -> String {
    let units = [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    match units.into_iter().find(|(unit, _)| number >= *unit) {
        Some((unit, suffix)) if number.is_multiple_of(unit) => format!("{}{suffix}", number / unit),
        Some((unit, suffix)) => format!("{:.1}{suffix}", number as f64 / unit as f64),
        None => number.to_string(),
    }
}

/// Formats `2026-11-05` as `5 Nov`; returns other text unchanged.
pub(super) fn short_day(day: &str) -> String {
    day.parse::<Date>().map_or_else(|_| day.to_owned(), |date| date.strftime("%-d %b").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_scale_is_round_and_covers_the_maximum() {
        for (highest, top, step) in
            [(0, 4, 1), (4, 4, 1), (5, 5, 1), (6, 6, 2), (42, 50, 10), (9_800, 10_000, 2_000), (10_001, 15_000, 5_000)]
        {
            let scale = ChartScale::covering(highest);
            assert_eq!((scale.max, scale.step), (top, step), "for {highest}");
        }
        let largest = ChartScale::covering(u64::MAX / 4);
        assert!(largest.max >= u64::MAX / 4);
    }

    #[test]
    fn pause_chart_shows_each_second_as_bar_and_number() {
        let mut counts = [0; 60];
        counts[59] = 41;
        counts[0] = 1;
        let html = pause_chart(&counts);
        assert!(html.contains("<path d=\"M0.5 100V98M59.5 100V18\"/>"), "a second without requests has no bar: {html}");
        assert_eq!(html.matches("<tr>").count(), 6);
        assert!(html.contains("<th scope=\"row\">−60 to −51 s</th><td>  1   0   0"));
        assert!(html.starts_with("<svg class=\"chart seconds\" data-counts=\"1,0,0,"), "{html}");
        assert!(html.contains("role=\"img\"><title>Requests in each of the 60 seconds before the pause</title>"));
        assert!(html.contains("<desc>42 in total, 41 in the busiest second.</desc>"));
    }

    #[test]
    fn empty_chart_is_valid_svg() {
        let svg = pause_chart(&[]);
        assert!(svg.starts_with("<svg") && svg.contains("</svg>") && !svg.contains("NaN"));
    }

    #[test]
    fn usage_bar_class_follows_its_level() {
        for (used, level) in [
            (0, "normal"),
            (7_999, "normal"),
            (8_000, "near-limit"),
            (10_000, "limit-reached"),
            (10_400, "limit-reached"),
        ] {
            assert!(usage_bar(used, 10_000).contains(&format!("class=\"usage-bar {level}\"")), "{used}");
        }
        assert!(usage_bar(1, 1_000_000).contains("width=\"1.2%\""), "a small number is visible");
        assert!(usage_bar(20_000, 10_000).contains("width=\"100.0%\""), "the bar never exceeds its track");
    }

    #[test]
    fn axis_numbers_and_days_are_abbreviated() {
        assert_eq!([0, 500, 20_000, 1_500_000].map(format_axis_number), ["0", "500", "20k", "1.5M"]);
        assert_eq!(short_day("2026-01-05"), "5 Jan");
        assert_eq!(short_day("2026-13-05"), "2026-13-05");
    }
}
