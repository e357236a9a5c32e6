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

/// Placeholders in the files, so that they are valid programs.
const PLACEHOLDER_BASE_URL: &str = "https://ip.example";
const PLACEHOLDER_KEY: &str = "ips_…";
/// What the documentation shows for the reader's key.
pub(super) const DOCS_KEY: &str = "<API_KEY>";

/// All samples as Markdown code blocks that become tabs, with the base URL of this service.
pub(super) fn samples_markdown(base_url: &str) -> String {
    let block = |CodeSample { id, title, language, text }: &CodeSample| {
        tab_markdown(language, id, title, &program(text, base_url, DOCS_KEY))
    };
    SAMPLES.iter().map(block).collect()
}

/// A program as a Markdown code block. Successive blocks with an id and a title become tabs.
pub(super) fn tab_markdown(language: &str, id: &str, title: &str, program: &str) -> String {
    format!("```{language} tab={id} title={title}\n{program}```\n\n")
}

/// A sample as a Markdown code block, with the base URL of this service.
pub(super) fn code_markdown(language: &str, text: &str, base_url: &str) -> String {
    format!("```{language}\n{}```", program(text, base_url, DOCS_KEY))
}

/// The lines of a file that are shown, with a key and the base URL of this service.
pub(super) fn program(text: &str, base_url: &str, key: &str) -> String {
    marked_lines(text).replace(PLACEHOLDER_BASE_URL, base_url).replace(PLACEHOLDER_KEY, key)
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
