//! Line length of Markdown, and the form of decision records and of the security page.

use std::collections::BTreeSet;

use super::{repository_root, text_files};

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

/// Texts between backticks.
fn backquoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn security_page_names_existing_tests() {
    let files = text_files();
    let (_, page) = files.iter().find(|(path, _)| path == "docs/security.md").expect("page exists");
    let rust_sources = files.iter().filter(|(path, _)| path.ends_with(".rs")).map(|(_, source)| source);
    let functions: BTreeSet<_> = rust_sources
        .flat_map(|source| source.split("fn ").skip(1))
        .filter_map(|rest| rest.split_once("()"))
        .map(|(name, _)| name)
        .collect();
    let is_row = |line: &&str| line.starts_with("| ") && line[2..].starts_with(|first: char| first.is_ascii_digit());
    let rows: Vec<_> = page.lines().filter(is_row).collect();
    assert!(rows.len() > 150, "only {} rows", rows.len());
    for row in rows {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let ["", _, _, state, tests, notes, ""] = cells[..] else { panic!("expected six bars: {row}") };
        let evidence = match state {
            "**met**" => tests,
            "**met, by design**" | "**not applicable**" | "**open**" => notes,
            _ => panic!("unknown state: {row}"),
        };
        assert!(!evidence.is_empty(), "neither a test nor a note: {row}");
        for name in backquoted(tests) {
            assert!(functions.contains(name), "no test named {name}");
        }
        let folders = ["crates/", "deploy/", "docs/", ".github/"];
        for path in backquoted(notes).filter(|text| folders.iter().any(|folder| text.starts_with(folder))) {
            assert!(repository_root().join(path).exists(), "no file {path}");
        }
    }
}
