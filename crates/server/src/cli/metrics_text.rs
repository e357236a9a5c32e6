//! Parses a node's metrics.

use std::collections::BTreeMap;
use std::time::Instant;

/// All series of a node at one time.
pub(super) struct MetricsSnapshot {
    pub(super) taken_at: Instant,
    series: Vec<MetricSeries>,
}

pub(super) struct MetricSeries {
    name: String,
    labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

impl MetricSeries {
    pub(super) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

impl MetricsSnapshot {
    /// Parses the text of /metrics. Comments and malformed lines are skipped.
    pub(super) fn parse_series(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self { taken_at: Instant::now(), series: lines.filter_map(parse).collect() }
    }

    pub(super) fn series_of(&self, name: &str) -> impl Iterator<Item = &MetricSeries> {
        self.series.iter().filter(move |series| series.name == name)
    }

    /// The sum of a metric's series, or of those with this label.
    pub(super) fn sum(&self, name: &str, label: Option<(&str, &str)>) -> f64 {
        let matches = |series: &&MetricSeries| label.is_none_or(|(name, value)| series.label(name) == value);
        self.series_of(name).filter(matches).map(|series| series.value).sum()
    }

    /// Upper bounds and cumulative counts of a histogram's buckets, summed over its series.
    fn buckets(&self, name: &str) -> Vec<(f64, f64)> {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for series in self.series_of(&format!("{name}_bucket")) {
            let le = series.label("le").parse().unwrap_or(f64::INFINITY);
            match buckets.iter_mut().find(|(upper, _)| *upper == le) {
                Some((_, count)) => *count += series.value,
                None => buckets.push((le, series.value)),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets
    }

    /// A quantile, in seconds, of the observations since `previous`; `None` without observations.
    pub(super) fn quantile(&self, previous: &Self, name: &str, quantile: f64) -> Option<f64> {
        let before: Vec<_> = previous.buckets(name);
        let increase: Vec<(f64, f64)> = self
            .buckets(name)
            .into_iter()
            .map(|(le, count)| (le, count - before.iter().find(|(old, _)| *old == le).map_or(0.0, |(_, count)| *count)))
            .collect();
        let total = increase.last().map_or(0.0, |(_, count)| *count);
        if total <= 0.0 {
            return None;
        }
        let rank = total * quantile;
        let index = increase.iter().position(|(_, count)| *count >= rank)?;
        let (lower, below) = index.checked_sub(1).map_or((0.0, 0.0), |index| increase[index]);
        let (upper, count) = increase[index];
        if upper.is_infinite() {
            return Some(lower);
        }
        Some(lower + (upper - lower) * (rank - below) / (count - below).max(f64::MIN_POSITIVE))
    }
}

/// `name{label="value",…} 1.5`
fn parse(line: &str) -> Option<MetricSeries> {
    let (name_and_labels, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, labels) = match name_and_labels.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
        None => (name_and_labels, ""),
    };
    let mut parsed_labels = BTreeMap::new();
    let mut rest = labels;
    while let Some((label, after)) = rest.split_once("=\"") {
        let end = find_closing_quote(after)?;
        let text = after[..end].replace("\\\"", "\"").replace("\\n", "\n").replace("\\\\", "\\");
        parsed_labels.insert(label.trim_start_matches(',').to_owned(), text);
        rest = &after[end + 1..];
    }
    Some(MetricSeries { name: name.to_owned(), labels: parsed_labels, value })
}

/// Index of the quotation mark that ends a label value.
fn find_closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(index, c)| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends.then_some(index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS_TEXT: &str = "# TYPE a counter\na_total{x=\"1\",y=\"b \\\"c\\\", d\"} 3\na_total{x=\"2\"} 4\nb 1.5\n\
        s_bucket{le=\"0.1\"} 5\ns_bucket{le=\"0.2\"} 10\ns_bucket{le=\"+Inf\"} 10\n# EOF\n";

    #[test]
    fn metrics_text_parses_into_series() {
        let snapshot = MetricsSnapshot::parse_series(METRICS_TEXT);
        assert_eq!((snapshot.sum("a_total", None), snapshot.sum("a_total", Some(("x", "2")))), (7.0, 4.0));
        assert_eq!(snapshot.series_of("a_total").next().expect("series exists").label("y"), "b \"c\", d");
        assert_eq!(snapshot.sum("b", None), 1.5);
    }

    #[test]
    fn quantile_covers_only_new_observations() {
        let (now, empty) = (MetricsSnapshot::parse_series(METRICS_TEXT), MetricsSnapshot::parse_series(""));
        let p50 = now.quantile(&empty, "s", 0.5).expect("there are observations");
        let p90 = now.quantile(&empty, "s", 0.9).expect("there are observations");
        assert!((p50 - 0.1).abs() < 1e-9 && (p90 - 0.18).abs() < 1e-9, "{p50} {p90}");
        assert_eq!(now.quantile(&now, "s", 0.5), None);
    }
}
