//! The Lua scripts. Redis runs each script as one atomic step.
//!
//! The sources contain placeholders, which are replaced by numbers when a script is loaded:
//!
//! | Placeholder | Value for the column `paused`, byte 49 of the record |
//! |---|---|
//! | `{{paused}}` | `49, 49`: the arguments of `string.sub` |
//! | `{{paused.first}}`, `{{paused.last}}` | 49: positions as Lua counts, from 1 |
//! | `{{paused.offset}}` | 48: the position as `SETRANGE` counts, from 0 |
//! | `{{paused.width}}` | 1 |
//! | `{{paused.digits}}` | `%01d`: the format of a number of that width |
//! | `{{BURST_LIMIT}}` | a constant of the table below |

use std::sync::LazyLock;

use ipseity_domain::{BURST_LIMIT, BURST_WINDOW_S, DAY_S};
use redis::Script;

use crate::columns::find_column;

const CONSTANTS: [(&str, u64); 9] = [
    ("BURST_LIMIT", BURST_LIMIT as u64),
    ("BURST_WINDOW_S", BURST_WINDOW_S),
    ("BURST_WINDOW_MS", BURST_WINDOW_S * 1000),
    ("DAY_MS", DAY_S * 1000),
    // If the clock goes back by at most this, the time of the newest request is used.
    ("CLOCK_STEP_MAX_MS", 1_000),
    // How far a node's estimate of Redis's clock may be off.
    ("NODE_CLOCK_ERROR_MS", 1_000),
    // More than two burst windows, because the expiry of a log is renewed only once per window.
    ("LOG_TTL_MS", 130_000),
    ("RECORD_TTL_MS", 3 * DAY_S * 1000),
    // Longer than any batch is retried.
    ("RECONCILED_TTL_MS", 3_600_000),
];

pub(crate) static CHARGE: LazyLock<Script> = LazyLock::new(|| record_script(include_str!("charge.lua")));
pub(crate) static CHARGE_DEMO: LazyLock<Script> = LazyLock::new(|| script(include_str!("charge_demo.lua")));
pub(crate) static WRITE_RECORD: LazyLock<Script> = LazyLock::new(|| record_script(include_str!("write_record.lua")));
pub(crate) static DELETE_RECORD: LazyLock<Script> = LazyLock::new(|| script(include_str!("delete_record.lua")));
pub(crate) static CLEAR_YESTERDAY: LazyLock<Script> = LazyLock::new(|| script(include_str!("clear_yesterday.lua")));
pub(crate) static RECONCILE: LazyLock<Script> = LazyLock::new(|| record_script(include_str!("reconcile.lua")));
pub(crate) static RECONCILE_DEMO: LazyLock<Script> = LazyLock::new(|| script(include_str!("reconcile_demo.lua")));

fn script(source: &str) -> Script {
    Script::new(&replace_placeholders(source))
}

/// A script that uses the functions of `record.lua`.
fn record_script(source: &str) -> Script {
    script(&[include_str!("record.lua"), source].concat())
}

/// Unknown placeholders stay.
fn replace_placeholders(source: &str) -> String {
    let mut parts = source.split("{{");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let replaced = part.split_once("}}").and_then(|(placeholder, rest)| Some((value_of(placeholder)?, rest)));
        match replaced {
            Some((value, rest)) => text.extend([&value, rest]),
            None => text.extend(["{{", part]),
        }
    }
    text
}

fn value_of(placeholder: &str) -> Option<String> {
    if let Some((_, value)) = CONSTANTS.iter().find(|(name, _)| *name == placeholder) {
        return Some(value.to_string());
    }
    let (name, property) = placeholder.split_once('.').unwrap_or((placeholder, ""));
    let column = find_column(name)?;
    match property {
        "" => Some(format!("{}, {}", column.start + 1, column.end())),
        "first" => Some((column.start + 1).to_string()),
        "last" => Some(column.end().to_string()),
        "offset" => Some(column.start.to_string()),
        "width" => Some(column.width.to_string()),
        "digits" => Some(format!("%0{}d", column.width)),
        _ => None,
    }
}

/// A random value that makes a fence unique.
pub(crate) fn random_nonce() -> String {
    format!("{:016x}", fastrand::u64(..))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn placeholders_become_numbers() {
        assert_eq!(replace_placeholders("sub(record, {{paused}})"), "sub(record, 49, 49)");
        assert_eq!(replace_placeholders("{{paused.offset}} {{today_count.digits}}"), "48 %012d");
        assert_eq!(replace_placeholders("< {{BURST_WINDOW_MS}} {{unknown}}"), "< 60000 {{unknown}}");
    }

    #[test]
    fn scripts_contain_only_known_placeholders() {
        for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scripts")).expect("scripts exist") {
            let path = entry.expect("directory is readable").path();
            if path.extension().is_some_and(|extension| extension == "lua") {
                let text = replace_placeholders(&fs::read_to_string(&path).expect("script is readable"));
                assert!(!text.contains("{{"), "{}: {text}", path.display());
            }
        }
    }
}
