//! Code samples in many languages: files of the project. The documentation shows the lines between two markers.

/// A code sample.
pub(super) struct CodeSample {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) language: &'static str,
    pub(super) text: &'static str,
}

const SAMPLES: &[CodeSample] = include!(concat!(env!("OUT_DIR"), "/samples.rs"));
const BEGIN_MARKER: &str = "[docs]";
const END_MARKER: &str = "[/docs]";

/// Placeholder for the base URL in the files.
const PLACEHOLDER_BASE_URL: &str = "https://ip.example";

/// All samples as Markdown sections, with the base URL of this service.
pub(super) fn samples_markdown(base_url: &str) -> String {
    let section = |sample: &CodeSample| {
        let CodeSample { id, title, language, text } = sample;
        format!("## {title} {{#{id}}}\n\n{}\n\n", code_markdown(language, text, base_url))
    };
    SAMPLES.iter().map(section).collect()
}

/// A sample as a Markdown code block, with the base URL of this service.
pub(super) fn code_markdown(language: &str, text: &str, base_url: &str) -> String {
    format!("```{language}\n{}```", marked_lines(text).replace(PLACEHOLDER_BASE_URL, base_url))
}

/// The lines between the markers, or all lines if there are no markers.
fn marked_lines(text: &str) -> String {
    let has_markers = text.lines().any(|line| line.contains(BEGIN_MARKER));
    let mut is_shown = !has_markers;
    let mut lines = String::new();
    for line in text.lines() {
        if line.contains(END_MARKER) {
            is_shown = false;
        } else if line.contains(BEGIN_MARKER) {
            is_shown = true;
        } else if is_shown {
            lines.push_str(line);
            lines.push('\n');
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_between_the_markers_are_shown() {
        assert_eq!(marked_lines("a\n// [docs]\nb\nc\n// [/docs]\nd\n"), "b\nc\n");
        assert_eq!(marked_lines("a\nb"), "a\nb\n");
    }
}
