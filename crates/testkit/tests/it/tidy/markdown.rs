//! Line length of Markdown, and the form of decision records.

use super::text_files;

const COLUMNS_MAX: usize = 120;

/// Lines over the limit outside of tables, whose rows cannot be wrapped.
fn long_lines(text: &str) -> Vec<usize> {
    let is_long = |line: &str| line.chars().count() > COLUMNS_MAX && !line.trim_start().starts_with('|');
    text.lines().enumerate().filter(|(_, line)| is_long(line)).map(|(number, _)| number + 1).collect()
}

#[test]
fn markdown_lines_have_at_most_120_columns() {
    let long: Vec<_> = text_files()
        .into_iter()
        .filter(|(path, _)| path.ends_with(".md"))
        .flat_map(|(path, text)| long_lines(&text).into_iter().map(move |number| format!("{path}:{number}")))
        .collect();
    assert!(long.is_empty(), "wrap these lines:\n{}", long.join("\n"));
    assert_eq!(long_lines(&format!("short\n{}\n| {} |", "x".repeat(121), "x".repeat(121))), [2]);
}

#[test]
fn both_privacy_pages_have_the_same_table() {
    let tables = ["docs/privacy.md", "docs/site/privacy.md"].map(|page| {
        let (_, text) = text_files().into_iter().find(|(path, _)| path == page).expect("page exists");
        let lines = text.lines().skip_while(|line| !line.starts_with("| What | Where | Until |"));
        lines.take_while(|line| !line.starts_with("Text that") && !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    });
    assert!(tables[0].lines().count() > 10);
    assert_eq!(tables[0].trim_end(), tables[1].trim_end());
}

#[test]
fn decision_records_are_numbered_without_gaps_and_have_four_sections() {
    let mut decisions: Vec<_> = text_files()
        .into_iter()
        .filter_map(|(path, text)| Some((path.strip_prefix("docs/decisions/")?.to_owned(), text)))
        .collect();
    decisions.sort();
    let (_, index) = decisions.pop().filter(|(name, _)| name == "README.md").expect("index of the decisions");
    assert!(decisions.len() >= 16);
    for (number, (name, text)) in decisions.iter().enumerate() {
        assert!(name.starts_with(&format!("{:04}-", number + 1)), "{name} is not number {}", number + 1);
        assert!(index.contains(name.as_str()), "the index lacks {name}");
        for heading in ["## Context", "## Decision", "## Alternatives", "## Consequences"] {
            assert!(text.contains(heading), "{name} lacks {heading}");
        }
    }
}
