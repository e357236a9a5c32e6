//! The Lua scripts. Redis runs each script as one atomic step.

use std::sync::LazyLock;

use redis::Script;

pub(crate) static CHARGE: LazyLock<Script> = LazyLock::new(|| record_script(include_str!("charge.lua")));
pub(crate) static CHARGE_DEMO: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("charge_demo.lua")));
pub(crate) static WRITE_RECORD: LazyLock<Script> = LazyLock::new(|| record_script(include_str!("write_record.lua")));
pub(crate) static DELETE_RECORD: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("delete_record.lua")));
pub(crate) static CLEAR_YESTERDAY: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("clear_yesterday.lua")));
pub(crate) static RECONCILE: LazyLock<Script> = LazyLock::new(|| record_script(include_str!("reconcile.lua")));
pub(crate) static RECONCILE_DEMO: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("reconcile_demo.lua")));

/// A script that reads or writes key records. `record.lua` comes first.
fn record_script(source: &str) -> Script {
    Script::new(&[include_str!("record.lua"), source].concat())
}

/// A value for the scripts that was never used before, such as a fence.
pub(crate) fn random_nonce() -> String {
    format!("{:016x}", fastrand::u64(..))
}
