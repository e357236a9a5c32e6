//! Charts of hours, days or weeks, in SVG: successful requests, with rejected ones on top.

use std::fmt::Write;

use crate::html::escape_html;
use crate::view::chart::{ChartScale, axis_label, format_count, open_svg, push_fmt, short_day};

/// Number of days between labels.
const LABEL_EVERY_DAYS: usize = 7;
/// Fraction of a column that stays empty.
const BAR_GAP: f64 = 0.24;
/// The scale covers a limit of up to this many times the highest bar. A higher one would make the bars too low to compare.
const LIMIT_SCALE_MAX: u64 = 4;
/// Labels closer to the right edge end there, in percent.
const EDGE_PERCENT: f64 = 95.0;

/// One bar.
pub(crate) struct Bar {
    /// The hour, the day or the days in the tooltip.
    pub(crate) label: String,
    /// The label on the axis; empty for most.
    pub(crate) axis_label: String,
    pub(crate) admitted: u64,
    pub(crate) rejected: u64,
}

impl Bar {
    fn total(&self) -> u64 {
        self.admitted.saturating_add(self.rejected)
    }
}

/// Bars, oldest first.
pub(crate) struct BarChart<'a> {
    /// Such as `Requests per day, last 30 days`.
    pub(crate) title: &'a str,
    /// Shown if there are no requests.
    pub(crate) empty_text: &'a str,
    pub(crate) bars: &'a [Bar],
    /// The daily limit, if each bar is a day.
    pub(crate) daily_limit: Option<u64>,
}

/// Chart of the last days, oldest first: day, successful and rejected requests.
pub(crate) fn daily_chart(days: &[(String, u64, u64)]) -> String {
    let to_bar = |(index, (day, admitted, rejected)): (usize, &(String, u64, u64))| {
        let label = short_day(day);
        let has_axis_label = (days.len() - 1 - index).is_multiple_of(LABEL_EVERY_DAYS);
        let axis_label = if has_axis_label { label.clone() } else { String::new() };
        Bar { label, axis_label, admitted: *admitted, rejected: *rejected }
    };
    let bars: Vec<_> = days.iter().enumerate().map(to_bar).collect();
    let title = format!("Requests per day, last {} days", days.len());
    let empty_text = "No requests in the last 30 days";
    BarChart { title: &title, empty_text, bars: &bars, daily_limit: None }.render()
}

impl BarChart<'_> {
    fn highest(&self) -> u64 {
        self.bars.iter().map(Bar::total).max().unwrap_or(0)
    }

    /// The daily limit, if the chart has a line for it.
    pub(crate) fn shown_limit(&self) -> Option<u64> {
        let highest = self.highest();
        self.daily_limit.filter(|limit| highest > 0 && *limit <= highest.saturating_mul(LIMIT_SCALE_MAX))
    }

    /// The chart in SVG.
    pub(crate) fn render(&self) -> String {
        let highest = self.highest();
        let admitted: u64 = self.bars.iter().map(|bar| bar.admitted).sum();
        let rejected: u64 = self.bars.iter().map(|bar| bar.rejected).sum();
        let scale = ChartScale::covering(highest.max(self.shown_limit().unwrap_or(0)));
        let mut svg = open_svg(
            "class=\"chart days\"",
            &escape_html(self.title),
            &format!("{} successful and {} rejected in total.", format_count(admitted), format_count(rejected)),
        );
        if highest == 0 {
            push_fmt!(
                svg,
                "<text class=\"empty-label\" x=\"50%\" y=\"50%\" text-anchor=\"middle\">{}</text>",
                escape_html(self.empty_text)
            );
            svg.push_str("<line class=\"axis\" x2=\"100%\" y1=\"100%\" y2=\"100%\"/>");
        } else {
            scale.draw_grid(&mut svg);
        }
        self.draw_tooltips(&mut svg);
        self.draw_bars(&mut svg, &scale);
        let width = self.column_width();
        for (index, bar) in self.bars.iter().enumerate().filter(|(_, bar)| !bar.axis_label.is_empty()) {
            let (x, anchor) = match (index as f64 + 0.5) * width {
                _ if index + 1 == self.bars.len() => (100.0, "end"),
                middle if middle > EDGE_PERCENT => ((index + 1) as f64 * width, "end"),
                middle => (middle, "middle"),
            };
            axis_label(&mut svg, x, anchor, &bar.axis_label);
        }
        if let Some(limit) = self.shown_limit() {
            let y = 100.0 - scale.height(limit);
            push_fmt!(svg, "<line class=\"limit\" x2=\"100%\" y1=\"{y:.2}%\" y2=\"{y:.2}%\"/>");
        }
        svg.push_str("</svg>");
        svg
    }

    fn column_width(&self) -> f64 {
        100.0 / self.bars.len() as f64
    }

    /// Draws a group for each column: its tooltip, and a hover area of full height.
    fn draw_tooltips(&self, svg: &mut String) {
        let width = self.column_width();
        for (index, bar) in self.bars.iter().enumerate() {
            let (label, left) = (escape_html(&bar.label), index as f64 * width);
            let (admitted, rejected) = (format_count(bar.admitted), format_count(bar.rejected));
            push_fmt!(
                svg,
                "<g><title>{label}: {admitted} successful, {rejected} rejected</title>\
                 <rect x=\"{left:.2}%\" width=\"{width:.2}%\"/></g>"
            );
        }
    }

    /// Draws all bars as two paths, each column one unit wide: a week has 168 bars.
    fn draw_bars(&self, svg: &mut String, scale: &ChartScale) {
        let (mut admitted, mut rejected) = (String::new(), String::new());
        for (index, bar) in self.bars.iter().enumerate().filter(|(_, bar)| bar.total() > 0) {
            // The minimum applies to the whole bar, so that its parts keep their proportion.
            let height = scale.height(bar.total());
            let rejected_height = height * bar.rejected as f64 / bar.total() as f64;
            let (left, middle) = (index as f64 + BAR_GAP / 2.0, 100.0 - height + rejected_height);
            draw_part(&mut admitted, left, 100.0, middle);
            draw_part(&mut rejected, left, middle, 100.0 - height);
        }
        push_fmt!(svg, "<svg class=\"bars\" viewBox=\"0 0 {} 100\" preserveAspectRatio=\"none\">", self.bars.len());
        push_fmt!(svg, "<path class=\"admitted\" d=\"{admitted}\"/><path class=\"rejected\" d=\"{rejected}\"/></svg>");
    }
}

fn draw_part(path: &mut String, left: f64, bottom: f64, top: f64) {
    if top < bottom {
        push_fmt!(path, "M{left:.2} {bottom:.2}V{top:.2}h{:.2}V{bottom:.2}", 1.0 - BAR_GAP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str, admitted: u64, rejected: u64) -> (String, u64, u64) {
        (text.to_owned(), admitted, rejected)
    }

    #[test]
    fn daily_chart_stacks_rejected_on_successful() {
        let svg = daily_chart(&[day("2026-11-14", 0, 0), day("2026-11-15", 3, 1)]);
        assert!(svg.contains("<title>15 Nov: 3 successful, 1 rejected</title>"));
        assert!(svg.contains("<path class=\"admitted\" d=\"M1.12 100.00V25.00h0.76V100.00\"/>"), "{svg}");
        assert!(svg.contains("<path class=\"rejected\" d=\"M1.12 25.00V0.00h0.76V25.00\"/>"), "{svg}");
    }

    #[test]
    fn small_bar_keeps_the_proportion_of_its_parts() {
        let svg = daily_chart(&[day("2026-11-14", 313, 2), day("2026-11-15", 30_000, 0)]);
        assert!(svg.contains("M0.12 100.00V98.81h") && svg.contains("M0.12 98.81V98.80h"), "{svg}");
        let full = daily_chart(&[day("2026-11-15", 9_999, 1)]);
        assert!(full.contains("M0.12 0.01V0.00h") && !full.contains("V-"), "no bar is higher than the chart: {full}");
    }

    #[test]
    fn limit_is_a_line_unless_it_is_far_above_the_bars() {
        let chart = |admitted, daily_limit| {
            let bars = [Bar { label: "15 Nov".to_owned(), axis_label: String::new(), admitted, rejected: 0 }];
            let chart = BarChart { title: "A title", empty_text: "", bars: &bars, daily_limit };
            (chart.shown_limit(), chart.render())
        };
        let (shown, svg) = chart(2_500, Some(10_000));
        assert_eq!(shown, Some(10_000));
        assert!(
            svg.contains("<line class=\"limit\" x2=\"100%\" y1=\"0.00%\"") && svg.contains("100.00V75.00h"),
            "{svg}"
        );
        let (shown, svg) = chart(12_000, Some(10_000));
        assert!(shown == Some(10_000) && svg.contains("y1=\"33.33%\""), "the limit was lower later: {svg}");
        for (admitted, limit) in [(2_499, Some(10_000)), (0, Some(10_000)), (5, None)] {
            let (shown, svg) = chart(admitted, limit);
            assert!(shown.is_none() && !svg.contains("limit"), "{svg}");
        }
    }

    #[test]
    fn empty_chart_is_valid_svg() {
        let svg = daily_chart(&[]);
        assert!(svg.starts_with("<svg") && svg.contains("</svg>") && !svg.contains("NaN"));
    }

    #[test]
    fn charts_escape_text_and_have_no_inline_styles() {
        let svg = daily_chart(&[day("<b>", u64::from(u32::MAX), 7)]);
        assert!(!svg.contains("style=") && !svg.contains("<b>") && svg.contains("&lt;b&gt;"));
    }
}
