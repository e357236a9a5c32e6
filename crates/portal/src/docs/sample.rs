//! Samples in many languages: real files of the project, of which the documentation shows the part between two marks.

/// A file that shows how to call the service.
pub(super) struct Sample {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) language: &'static str,
    pub(super) text: &'static str,
}

const SAMPLES: &[Sample] = include!(concat!(env!("OUT_DIR"), "/samples.rs"));
const BEGIN: &str = "[docs]";
const END: &str = "[/docs]";

/// Stands for the service's own address in the files.
const ELSEWHERE: &str = "https://ip.example";

/// All of them as sections of Markdown, with this service's address.
pub(super) fn sections(base_url: &str) -> String {
    let section = |sample: &Sample| {
        let Sample { id, title, language, text } = sample;
        format!("## {title} {{#{id}}}\n\n```{language}\n{}```\n\n", shown(text).replace(ELSEWHERE, base_url))
    };
    SAMPLES.iter().map(section).collect()
}

/// The lines between the marks, or all of them if there are no marks.
fn shown(text: &str) -> String {
    let is_marked = text.lines().any(|line| line.contains(BEGIN));
    let mut is_shown = !is_marked;
    let mut shown = String::new();
    for line in text.lines() {
        if line.contains(END) {
            is_shown = false;
        } else if line.contains(BEGIN) {
            is_shown = true;
        } else if is_shown {
            shown.push_str(line);
            shown.push('\n');
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_the_marks_is_shown() {
        assert_eq!(shown("a\n// [docs]\nb\nc\n// [/docs]\nd\n"), "b\nc\n");
        assert_eq!(shown("a\nb"), "a\nb\n");
    }
}
