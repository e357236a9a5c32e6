//! Names settings that do not exist: the file and the line, or the variable, and the setting that was probably meant.

use std::path::Path;

use anyhow::{Result, bail};
use config::{File, FileFormat, Map, Source, Value, ValueKind};

use crate::config::defaults::DEFAULT_TOML;

/// A typing mistake has at most this many wrong letters.
const TYPOS_MAX: usize = 3;

/// Fails if a configuration file has an unknown section or setting. Invalid TOML is reported elsewhere.
pub(super) fn reject_unknown_in_file(file: &Path, text: &str) -> Result<()> {
    let Ok(settings) = File::from_str(text, FileFormat::Toml).collect() else { return Ok(()) };
    let Some(unknown) = find_unknown(&settings) else { return Ok(()) };
    let line = line_of(text, &unknown).map_or_else(String::new, |number| format!(", line {number}"));
    bail!("{} has an unknown setting {unknown}{line}. {}", file.display(), hint(&unknown, ToOwned::to_owned))
}

/// Names the setting that was probably meant.
pub(super) fn hint(unknown: &str, display: impl Fn(&str) -> String) -> String {
    let close = known_settings().into_iter().map(|known| (edit_distance(unknown, &known), known)).min();
    let meant = close.filter(|(distance, _)| *distance <= TYPOS_MAX);
    meant.map_or_else(
        || "`default.toml` documents every setting.".to_owned(),
        |(_, known)| format!("Did you mean {}?", display(&known)),
    )
}

/// Whether there is a setting, such as `edge.http`.
pub(super) fn is_known(setting: &str) -> bool {
    known_settings().iter().any(|known| known == setting)
}

fn known_settings() -> Vec<String> {
    let defaults = File::from_str(DEFAULT_TOML, FileFormat::Toml).collect().unwrap_or_default();
    settings_of(&defaults)
}

/// The first unknown section or setting.
fn find_unknown(settings: &Map<String, Value>) -> Option<String> {
    let known = known_settings();
    settings_of(settings).into_iter().find(|setting| !known.contains(setting))
}

/// Sections with their settings. A section that is not a table, or is empty, is listed alone.
fn settings_of(sections: &Map<String, Value>) -> Vec<String> {
    let mut settings = Vec::new();
    for (section, value) in sections {
        if let ValueKind::Table(fields) = &value.kind {
            settings.extend(fields.keys().map(|name| format!("{section}.{name}")));
        } else {
            settings.push(section.clone());
        }
    }
    settings.sort();
    settings
}

/// The line of a setting, starting with 1; `None` if it is written in an unusual way.
fn line_of(text: &str, setting: &str) -> Option<usize> {
    let (wanted_section, wanted_name) = setting.split_once('.').unwrap_or((setting, ""));
    let mut section = "";
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.split(']').next().unwrap_or_default().trim_start_matches('[').trim();
            let array = format!("{wanted_section}.{wanted_name}");
            if section == array {
                return Some(number);
            }
        } else if line.split(['=', '.']).next().is_some_and(|name| {
            section == wanted_section && name.trim() == wanted_name || section.is_empty() && name.trim() == setting
        }) {
            return Some(number);
        }
    }
    None
}

/// The number of letters to insert, delete or replace (Levenshtein distance).
fn edit_distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_setting_is_named_with_its_line_and_a_suggestion() {
        for (text, expected) in [
            ("[edge]\nhttps = []\nhttpp = []\n", "unknown setting edge.httpp, line 3. Did you mean edge.http?"),
            ("[egde]\ncolo = \"\"\n", "unknown setting egde.colo, line 2. Did you mean edge.colo?"),
            ("level = \"info\"\n", "unknown setting level, line 1. `default.toml`"),
            ("[nothing.like.it]\nx = 1\n", "unknown setting nothing.like"),
            ("[[geo.source]]\nurl = \"\"\n", "unknown setting geo.source, line 1. Did you mean geo.sources?"),
            ("edge.kolo = 1\n", "unknown setting edge.kolo. Did you mean edge.colo?"),
        ] {
            let error = reject_unknown_in_file(Path::new("a.toml"), text).expect_err("rejected").to_string();
            assert!(error.contains(expected) && error.starts_with("a.toml has"), "{text:?}: {error}");
        }
        reject_unknown_in_file(Path::new("a.toml"), DEFAULT_TOML).expect("all settings are known");
    }
}
