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
//! | `{{paused.pattern}}` | `%d`, repeated: the pattern of a number of that width |
//! | `{{DAY_MS}}` | a constant of the table below |
//!
//! Limits and windows are arguments, not constants.

#[cfg(feature = "mutants")]
mod mutants;

use std::sync::LazyLock;

use ipseity_domain::{BURST_WINDOW_S, DAY_S, IN_FLIGHT_MAX};
use redis::Script;

use crate::arrival::REMOTE_SLOTS;
use crate::columns::{ColumnKind, find_column};

/// How long after its time a charge is applied, by the clock of Redis. A charge that arrives later has no effect, so
/// that it can be reconciled after this time.
pub(crate) const CHARGE_VALID_MS: u64 = 1_000;

/// The channel of keys that remote nodes may no longer admit before they are charged.
pub(crate) const CHANGES_CHANNEL: &str = "ipseity:changes";

const CONSTANTS: [(&str, u64); 11] = [
    ("DAY_MS", DAY_S * 1000),
    ("CHARGE_VALID_MS", CHARGE_VALID_MS),
    // If the clock goes back by at most this, the time of the newest request is used.
    ("CLOCK_STEP_MAX_MS", 1_000),
    // A log expires after two burst windows and ten seconds, because its expiry is renewed only once per window. Not the window of a call:
    // after the clock was set back, that is shorter for a minute.
    ("LOG_PERIOD_MS", BURST_WINDOW_S * 1000),
    ("LOG_TTL_MS", 2 * BURST_WINDOW_S * 1000 + 10_000),
    ("RECORD_TTL_MS", 3 * DAY_S * 1000),
    // A call for each entry would take most of the time of a batch. Lua limits the number of arguments.
    ("ENTRIES_PER_PUSH", 100),
    ("IN_FLIGHT_MAX", IN_FLIGHT_MAX as u64),
    // Requests that are left before a limit when all slots of a key are closed, besides those that may be on their way.
    ("NEAR_LIMIT_SLACK", 8),
    // Further requests that must be left before they are opened again, so that a key at its limit is not closed all the time.
    ("NEAR_LIMIT_HYSTERESIS", 20),
    // The bit of the column open_slots that says that a limit is near, above those of the slots.
    ("NEAR_LIMIT_BIT", REMOTE_SLOTS as u64),
];

pub(crate) static CHARGE: LazyLock<Script> = LazyLock::new(|| record_script(include_str!("charge.lua")));
pub(crate) static CHARGE_DEMO: LazyLock<Script> = LazyLock::new(|| demo_script(include_str!("charge_demo.lua")));
pub(crate) static WRITE_RECORD: LazyLock<Script> = LazyLock::new(|| record_script(include_str!("write_record.lua")));
pub(crate) static INVALIDATE_RECORD: LazyLock<Script> =
    LazyLock::new(|| record_script(include_str!("invalidate_record.lua")));
pub(crate) static DELETE_RECORD: LazyLock<Script> = LazyLock::new(|| record_script(include_str!("delete_record.lua")));
pub(crate) static CONFIRM_FLUSH: LazyLock<Script> = LazyLock::new(|| script(include_str!("confirm_flush.lua")));
pub(crate) static RECONCILE: LazyLock<Script> = LazyLock::new(|| record_script(include_str!("reconcile.lua")));
pub(crate) static RECONCILE_DEMO: LazyLock<Script> = LazyLock::new(|| demo_script(include_str!("reconcile_demo.lua")));

fn script(source: &str) -> Script {
    #[cfg(feature = "mutants")]
    let source = &mutants::mutate(source);
    Script::new(&replace_placeholders(source))
}

/// A script that uses the functions of `record.lua`.
fn record_script(source: &str) -> Script {
    script(&[include_str!("record.lua"), source].concat())
}

/// A script that also uses the functions of `demo_record.lua`.
fn demo_script(source: &str) -> Script {
    record_script(&[include_str!("demo_record.lua"), source].concat())
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
    if placeholder == "CHANGES_CHANNEL" {
        return Some(CHANGES_CHANNEL.to_owned());
    }
    let (name, property) = placeholder.split_once('.').unwrap_or((placeholder, ""));
    let column = find_column(name)?;
    match property {
        "" => Some(format!("{}, {}", column.start + 1, column.end())),
        "first" => Some((column.start + 1).to_string()),
        "last" => Some(column.end().to_string()),
        "offset" => Some(column.start.to_string()),
        "width" => Some(column.width.to_string()),
        "digits" if column.kind == ColumnKind::Number => Some(format!("%0{}d", column.width)),
        "pattern" if column.kind == ColumnKind::Number => Some("%d".repeat(column.width)),
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
        assert_eq!(replace_placeholders("< {{CHARGE_VALID_MS}} {{unknown}}"), "< 1000 {{unknown}}");
        assert_eq!(replace_placeholders("{{digest.digits}}"), "{{digest.digits}}");
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
