//! The house rules that linters cannot see.

use std::fs;
use std::path::{Path, PathBuf};

const LINES_MAX: usize = 500;
const SOURCE_EXTENSIONS: [&str; 11] = ["rs", "lua", "sql", "py", "sh", "toml", "html", "css", "ts", "js", "mjs"];

fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file of the project as its path from the root and its text; built and fetched things are left out.
fn text_files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![repository_root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            let name = entry.file_name().expect("a name").to_string_lossy().into_owned();
            if [".git", "target", "data", "__pycache__", "node_modules"].contains(&name.as_str()) {
                continue;
            }
            if entry.is_dir() {
                folders.push(entry);
            } else if let Ok(text) = fs::read_to_string(&entry) {
                let path = entry.strip_prefix(repository_root()).expect("below the root").display().to_string();
                found.push((path, text));
            }
        }
    }
    assert!(found.len() > 100, "only {} files found", found.len());
    found
}

fn rust_files() -> Vec<(String, String)> {
    text_files().into_iter().filter(|(path, _)| path.ends_with(".rs") && !path.ends_with("tidy.rs")).collect()
}

/// Lines of Rust files that hold a text, as `path:line`.
fn occurrences(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (path, source) in rust_files() {
        let lines = source.lines().enumerate().filter(|(_, line)| line.contains(text));
        found.extend(lines.map(|(number, _)| format!("{path}:{}", number + 1)));
    }
    found
}

#[test]
fn source_files_have_at_most_500_lines() {
    let long: Vec<_> = text_files()
        .into_iter()
        .filter(|(path, text)| {
            SOURCE_EXTENSIONS.iter().any(|ending| path.ends_with(&format!(".{ending}")))
                && text.lines().count() > LINES_MAX
        })
        .map(|(path, _)| path)
        .collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn no_rust_file_has_a_catch_all_name() {
    for (path, _) in rust_files() {
        let name = Path::new(&path).file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(
            !["util", "utils", "common", "helpers", "misc", "types", "core", "manager"].contains(&name.as_str()),
            "{path}"
        );
    }
}

#[test]
fn lints_use_expect_not_allow_and_no_test_is_ignored() {
    for text in ["#[allow(", "#![allow(", "#[ignore"] {
        assert!(occurrences(text).is_empty(), "{text} at {:?}", occurrences(text));
    }
}

#[test]
fn address_is_exposed_only_in_allowed_files() {
    let allowed = [
        "crates/api/src/lookup/renderer/body.rs",
        "crates/edge/src/proxy/trust.rs",
        "crates/geo/src/atlas.rs",
        "crates/server/src/cli/explain_client.rs",
    ];
    for occurrence in occurrences("address.expose()") {
        let (path, _) = occurrence.split_once(':').expect("a path and a line");
        let in_test = path.contains("/tests/");
        assert!(in_test || allowed.contains(&path), "{occurrence}");
    }
    let client = fs::read_to_string(repository_root().join("crates/domain/src/client.rs")).expect("the client");
    let derived = client.lines().take_while(|line| !line.contains("pub struct Address")).last().expect("a derive");
    assert_eq!(derived, "#[derive(Clone, Copy, PartialEq, Eq)]");
}

#[test]
fn environment_is_read_only_in_allowed_crates() {
    for occurrence in occurrences("env::var") {
        // Samples are programs of their own.
        let is_allowed =
            ["crates/server/", "crates/testkit/", "samples/"].iter().any(|prefix| occurrence.starts_with(prefix));
        // A build script is told by cargo where to write.
        assert!(is_allowed || occurrence.contains("/tests/") || occurrence.contains("/build.rs:"), "{occurrence}");
    }
}

#[test]
fn every_decision_record_has_four_sections() {
    let decisions: Vec<_> = text_files().into_iter().filter(|(path, _)| path.starts_with("docs/decisions/0")).collect();
    assert!(decisions.len() >= 16);
    for (path, text) in decisions {
        for heading in ["\n## Context\n", "\n## Decision\n", "\n## Alternatives\n", "\n## Consequences\n"] {
            assert!(text.contains(heading), "{path} lacks {heading:?}");
        }
    }
}
