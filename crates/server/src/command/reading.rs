//! A node's metrics as text, read back into numbers.

use std::collections::BTreeMap;
use std::time::Instant;

/// All series of a node at one moment.
pub(super) struct Reading {
    pub(super) at: Instant,
    series: Vec<Series>,
}

pub(super) struct Series {
    name: String,
    labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

impl Series {
    pub(super) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

impl Reading {
    /// Reads what /metrics answers; lines that are no series are left out.
    pub(super) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self { at: Instant::now(), series: lines.filter_map(parse).collect() }
    }

    /// The series of a metric.
    pub(super) fn of(&self, name: &str) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(move |series| series.name == name)
    }

    /// The sum of a metric's series, or of those with this label.
    pub(super) fn sum(&self, name: &str, label: Option<(&str, &str)>) -> f64 {
        let fits = |series: &&Series| label.is_none_or(|(name, value)| series.label(name) == value);
        self.of(name).filter(fits).map(|series| series.value).sum()
    }

    /// The counts of a histogram's buckets, all its series together: upper bound and how many were below it.
    fn buckets(&self, name: &str) -> Vec<(f64, f64)> {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for series in self.of(&format!("{name}_bucket")) {
            let le = series.label("le").parse().unwrap_or(f64::INFINITY);
            match buckets.iter_mut().find(|(known, _)| *known == le) {
                Some((_, count)) => *count += series.value,
                None => buckets.push((le, series.value)),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets
    }

    /// The time below which this share of what was measured since the other reading lies, in seconds; `None` when nothing was.
    pub(super) fn quantile(&self, since: &Self, name: &str, share: f64) -> Option<f64> {
        let before: Vec<_> = since.buckets(name);
        let new: Vec<(f64, f64)> = self
            .buckets(name)
            .into_iter()
            .map(|(le, count)| (le, count - before.iter().find(|(old, _)| *old == le).map_or(0.0, |(_, count)| *count)))
            .collect();
        let total = new.last().map_or(0.0, |(_, count)| *count);
        if total <= 0.0 {
            return None;
        }
        let wanted = total * share;
        let place = new.iter().position(|(_, count)| *count >= wanted)?;
        let (lower, below) = place.checked_sub(1).map_or((0.0, 0.0), |place| new[place]);
        let (upper, count) = new[place];
        if upper.is_infinite() {
            return Some(lower);
        }
        Some(lower + (upper - lower) * (wanted - below) / (count - below).max(f64::MIN_POSITIVE))
    }
}

/// `name{label="value",…} 1.5`
fn parse(line: &str) -> Option<Series> {
    let (head, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, labels) = match head.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
        None => (head, ""),
    };
    let mut found = BTreeMap::new();
    let mut rest = labels;
    while let Some((label, after)) = rest.split_once("=\"") {
        let end = end_of_value(after)?;
        let text = after[..end].replace("\\\"", "\"").replace("\\n", "\n").replace("\\\\", "\\");
        found.insert(label.trim_start_matches(',').to_owned(), text);
        rest = &after[end + 1..];
    }
    Some(Series { name: name.to_owned(), labels: found, value })
}

/// Where the quotation mark is that ends a value.
fn end_of_value(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(place, letter)| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends.then_some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE a counter\na_total{x=\"1\",y=\"b \\\"c\\\", d\"} 3\na_total{x=\"2\"} 4\nb 1.5\n\
        s_bucket{le=\"0.1\"} 5\ns_bucket{le=\"0.2\"} 10\ns_bucket{le=\"+Inf\"} 10\n# EOF\n";

    #[test]
    fn metrics_are_read_as_they_are_written() {
        let reading = Reading::parse(TEXT);
        assert_eq!((reading.sum("a_total", None), reading.sum("a_total", Some(("x", "2")))), (7.0, 4.0));
        assert_eq!(reading.of("a_total").next().expect("a series").label("y"), "b \"c\", d");
        assert_eq!(reading.sum("b", None), 1.5);
    }

    #[test]
    fn a_quantile_is_of_what_was_measured_since() {
        let (now, nothing) = (Reading::parse(TEXT), Reading::parse(""));
        let half = now.quantile(&nothing, "s", 0.5).expect("a time");
        let most = now.quantile(&nothing, "s", 0.9).expect("a time");
        assert!((half - 0.1).abs() < 1e-9 && (most - 0.18).abs() < 1e-9, "{half} {most}");
        assert_eq!(now.quantile(&now, "s", 0.5), None);
    }
}
