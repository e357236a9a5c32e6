//! Commands, options, settings and recipes in the runbook exist.

use std::fs;
use std::path::Path;

use crate::cli::run_isolated;

const REPOSITORY_ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn read_file(path: impl AsRef<Path>) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

/// Name and text of every page for operators.
fn operator_pages() -> Vec<(String, String)> {
    let folders = ["docs/operations", "deploy/container", "deploy/kubernetes"]
        .map(|folder| Path::new(REPOSITORY_ROOT).join(folder));
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("read directory").flatten());
    let pages =
        files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    // A command may continue on the next line.
    pages.map(|path| (path.display().to_string(), read_file(&path).replace("\\\n  ", ""))).collect()
}

/// The text after each occurrence of a word, up to the end of its line or code span.
fn text_after<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(word).map(move |(at, _)| {
        let rest = &text[at + word.len()..];
        &rest[..rest.find(['`', '\n', '#', '&', ';']).unwrap_or(rest.len())]
    })
}

#[test]
fn runbook_names_only_existing_commands_and_options() {
    let mut commands = 0;
    for (page, text) in operator_pages() {
        for line in text_after(&text, "ipseityctl ").chain(text_after(&text, "/usr/bin/ipseity ")) {
            let line = line.strip_prefix("--config /etc/ipseity/settings/ipseity.toml ").unwrap_or(line);
            let is_name =
                |word: &&str| !word.starts_with('-') && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            let named: Vec<_> = line.split_whitespace().take_while(is_name).collect();
            // An argument, such as a plan's name, may look like a subcommand.
            let help = |count: usize| run_isolated(&[], &[&named[..count], &["--help"]].concat());
            let known = (1..=named.len()).rev().map(help).find(|output| output.is_success());
            let help = known.unwrap_or_else(|| panic!("{page}: ipseity {line}")).text();
            assert!(!help.contains("\nCommands:"), "{page}: ipseity {line}: a subcommand is missing");
            for option in line.split_whitespace().filter(|word| word.starts_with("--")) {
                assert!(help.contains(option), "{page}: ipseity {line}: there is no {option}");
            }
            commands += 1;
        }
    }
    assert!(commands > 20, "found only {commands} commands");
}

#[test]
fn runbook_names_only_existing_settings() {
    let default = read_file(Path::new(REPOSITORY_ROOT).join("crates/server/src/config/default.toml"));
    let mut settings = 0;
    for (page, text) in operator_pages() {
        for mention in text_after(&text, "`[") {
            let Some((section, setting)) = mention.split_once("] ") else { continue };
            let names = setting.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
            let setting = names.into_iter().next().unwrap_or_default();
            let section_text =
                default.split(&format!("\n[{section}]\n")).nth(1).unwrap_or_else(|| panic!("{page}: [{section}]"));
            let section_text = section_text.split("\n[").next().unwrap_or_default();
            assert!(
                section_text.contains(&format!("\n{setting} = ")) || section_text.starts_with(&format!("{setting} = ")),
                "{page}: [{section}] {setting}"
            );
            settings += 1;
        }
    }
    assert!(settings > 20, "found only {settings} settings");
}

#[test]
fn runbook_names_only_existing_recipes() {
    let recipes = read_file(Path::new(REPOSITORY_ROOT).join("justfile"));
    for (page, text) in operator_pages() {
        for mention in text_after(&text, "`just ") {
            let name = mention.split_whitespace().next().unwrap_or_default();
            let known = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', ':']));
            assert!(recipes.lines().any(known), "{page}: there is no recipe {name:?}");
        }
    }
}
