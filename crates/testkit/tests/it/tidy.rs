//! The house rules that linters cannot see.

use std::fs;
use std::path::{Path, PathBuf};

const LINES_MAX: usize = 500;
const SOURCES: [&str; 11] = ["rs", "lua", "sql", "py", "sh", "toml", "html", "css", "ts", "js", "mjs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file of the project as its path from the root and its text; built and fetched things are left out.
fn files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            let name = entry.file_name().expect("a name").to_string_lossy().into_owned();
            if [".git", "target", "data", "__pycache__", "node_modules"].contains(&name.as_str()) {
                continue;
            }
            if entry.is_dir() {
                folders.push(entry);
            } else if let Ok(text) = fs::read_to_string(&entry) {
                let path = entry.strip_prefix(root()).expect("below the root").display().to_string();
                found.push((path, text));
            }
        }
    }
    assert!(found.len() > 100, "only {} files found", found.len());
    found
}

fn rust() -> Vec<(String, String)> {
    files().into_iter().filter(|(path, _)| path.ends_with(".rs") && !path.ends_with("tidy.rs")).collect()
}

/// Lines of Rust files that hold a text, as `path:line`.
fn places(text: &str) -> Vec<String> {
    let mut places = Vec::new();
    for (path, source) in rust() {
        let lines = source.lines().enumerate().filter(|(_, line)| line.contains(text));
        places.extend(lines.map(|(number, _)| format!("{path}:{}", number + 1)));
    }
    places
}

#[test]
fn no_source_is_longer_than_500_lines() {
    let long: Vec<_> = files()
        .into_iter()
        .filter(|(path, text)| {
            SOURCES.iter().any(|ending| path.ends_with(&format!(".{ending}"))) && text.lines().count() > LINES_MAX
        })
        .map(|(path, _)| path)
        .collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn nothing_is_called_util() {
    for (path, _) in rust() {
        let name = Path::new(&path).file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(
            !["util", "utils", "common", "helpers", "misc", "types", "core", "manager"].contains(&name.as_str()),
            "{path}"
        );
    }
}

#[test]
fn no_lint_is_silenced_without_being_expected_and_no_test_is_ignored() {
    for text in ["#[allow(", "#![allow(", "#[ignore"] {
        assert!(places(text).is_empty(), "{text} at {:?}", places(text));
    }
}

#[test]
fn an_address_leaves_its_type_in_four_places_only() {
    let allowed = [
        "crates/api/src/projection.rs",
        "crates/edge/src/trust.rs",
        "crates/geo/src/atlas.rs",
        "crates/server/src/command/explain.rs",
    ];
    for place in places("address.expose()") {
        let (path, _) = place.split_once(':').expect("a path and a line");
        let in_test = path.contains("/tests/");
        assert!(in_test || allowed.contains(&path), "{place}");
    }
    let client = fs::read_to_string(root().join("crates/domain/src/client.rs")).expect("the client");
    let derived = client.lines().take_while(|line| !line.contains("pub struct Address")).last().expect("a derive");
    assert_eq!(derived, "#[derive(Clone, Copy, PartialEq, Eq)]");
}

#[test]
fn the_environment_is_read_in_the_server_only() {
    for place in places("env::var") {
        // Samples are programs of their own.
        let shown = ["crates/server/", "crates/testkit/", "samples/"].iter().any(|floor| place.starts_with(floor));
        // A build script is told by cargo where to write.
        assert!(shown || place.contains("/tests/") || place.contains("/build.rs:"), "{place}");
    }
}

#[test]
fn every_decision_has_its_four_parts() {
    let decisions: Vec<_> = files().into_iter().filter(|(path, _)| path.starts_with("docs/decisions/")).collect();
    assert!(decisions.len() >= 16);
    for (path, text) in decisions {
        for part in ["**Context.**", "**Decision.**", "**Refused.**", "**Consequences.**"] {
            assert!(text.contains(part), "{path} lacks {part}");
        }
    }
}
