//! Rules of the project that linters cannot check.

mod banned_words;
mod import_cycles;
mod markdown;
mod mutants;
mod privacy;
mod source_files;
mod type_names;
mod version;

use std::fs;
use std::path::{Path, PathBuf};

fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every text file of the project, as its path from the root and its content. Build output and downloads are left out.
fn text_files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![repository_root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("readable folder").map(|entry| entry.expect("folder entry").path()) {
            let name = entry.file_name().expect("file name").to_string_lossy().into_owned();
            if [".git", "target", "data", "__pycache__", "node_modules", "dist"].contains(&name.as_str()) {
                continue;
            }
            if entry.is_dir() {
                folders.push(entry);
            } else if let Ok(text) = fs::read_to_string(&entry) {
                let path = entry.strip_prefix(repository_root()).expect("path below the root").display().to_string();
                found.push((path, text));
            }
        }
    }
    assert!(found.len() > 100, "only {} files found", found.len());
    found
}

/// Rust files of the project, without these rules.
fn rust_files() -> Vec<(String, String)> {
    text_files().into_iter().filter(|(path, _)| path.ends_with(".rs") && !path.contains("/tidy/")).collect()
}

/// Lines of Rust files that contain a text, as `path:line`.
fn occurrences(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (path, source) in rust_files() {
        let lines = source.lines().enumerate().filter(|(_, line)| line.contains(text));
        found.extend(lines.map(|(number, _)| format!("{path}:{}", number + 1)));
    }
    found
}
