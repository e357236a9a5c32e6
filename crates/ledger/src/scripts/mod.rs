//! The Lua scripts. Redis runs each as one atomic step.

use redis::Script;

/// A script that reads or writes key records: `record.lua` comes first.
fn on_record(source: &str) -> Script {
    Script::new(&[include_str!("record.lua"), source].concat())
}

pub(crate) fn charge() -> Script {
    on_record(include_str!("charge.lua"))
}

pub(crate) fn charge_demo() -> Script {
    Script::new(include_str!("charge_demo.lua"))
}

pub(crate) fn write_record() -> Script {
    on_record(include_str!("write_record.lua"))
}

pub(crate) fn delete_record() -> Script {
    Script::new(include_str!("delete_record.lua"))
}

pub(crate) fn clear_yesterday() -> Script {
    Script::new(include_str!("clear_yesterday.lua"))
}

pub(crate) fn reconcile() -> Script {
    on_record(include_str!("reconcile.lua"))
}

pub(crate) fn reconcile_demo() -> Script {
    Script::new(include_str!("reconcile_demo.lua"))
}
