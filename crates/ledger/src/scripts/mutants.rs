//! Mutants of the scripts: one text of a script is replaced by another. See [`is_mutant`].

use ipseity_domain::is_mutant;

struct LuaMutant {
    name: &'static str,
    /// Occurs once in all scripts.
    text: &'static str,
    replacement: &'static str,
}

const LUA_MUTANTS: &[LuaMutant] = &[
    // record.lua
    LuaMutant {
        name: "future-day-kept",
        text: "if today > clock_day + 1 then return",
        replacement: "if false then return",
    },
    LuaMutant {
        name: "yesterday-zeroed",
        text: "return today, count, flag ==",
        replacement: "return today, 0, flag ==",
    },
    LuaMutant {
        name: "lost-log-not-noticed",
        text: "return newest > now - burst_window end",
        replacement: "return false end",
    },
    // charge.lua
    LuaMutant {
        name: "expired-charge-applied",
        text: "local expired = is_expired(clock, ARGV[5], ARGV[6])",
        replacement: "local expired = false",
    },
    LuaMutant {
        name: "incarnation-not-compared",
        text: " or find(record, incarnation, 1, true) ~= 1 then",
        replacement: " then",
    },
    LuaMutant {
        name: "secret-not-compared",
        text: "if not is_current_secret and not",
        replacement: "if false and not",
    },
    LuaMutant {
        name: "previous-secret-never-expires",
        text: " and clock < tonumber(sub(record, {{previous_expires_s}})) * 1000",
        replacement: "",
    },
    LuaMutant {
        name: "deactivated-not-compared",
        text: "if byte(record, {{deactivated.first}}) == ONE then",
        replacement: "if false then",
    },
    LuaMutant {
        name: "paused-not-compared",
        text: "if byte(record, {{paused.first}}) == ONE then",
        replacement: "if false then",
    },
    LuaMutant {
        name: "restriction-version-not-compared",
        text: "if applied_version < tonumber(version) then",
        replacement: "if false then",
    },
    LuaMutant {
        name: "near-limit-not-published",
        text: "    publish_change(record_key)\n    slots, slot =",
        replacement: "    slots, slot =",
    },
    LuaMutant {
        name: "near-limit-ignored",
        text: "elseif nodes > 0 and not are_left_for(nodes, 0) then",
        replacement: "elseif false then",
    },
    LuaMutant {
        name: "pause-not-pending",
        text: "  call('HSET', bucket_key(record_key, 'pending'), format('%s:%d', id_of(record_key), tonumber(burst_epoch)), format('%d', now))\n",
        replacement: "",
    },
    LuaMutant {
        name: "log-start-not-moved",
        text: "is_log_new = true\n      write_log_start(record, record_key, now)",
        replacement: "is_log_new = true",
    },
    LuaMutant { name: "log-kept-at-clock-step", text: "call('LTRIM', log_key, -1, -1)", replacement: "" },
    LuaMutant {
        name: "daily-limit-plus-one",
        text: "if count < daily_limit then",
        replacement: "if count <= daily_limit then",
    },
    LuaMutant {
        name: "quota-refusal-logged-as-charge",
        text: "verdict, mark = '5', 1",
        replacement: "verdict, mark = '5', 0",
    },
    LuaMutant { name: "next-day-not-marked", text: "then mark = mark + 2 end", replacement: "then mark = mark end" },
    LuaMutant {
        name: "log-taken-for-sorted",
        text: "local ended = ended_entries(log_key, now)[1]",
        replacement: "local ended = nil",
    },
    LuaMutant {
        name: "burst-limit-plus-one",
        text: "elseif log_length > burst_limit then",
        replacement: "elseif log_length > burst_limit + 1 then",
    },
    LuaMutant {
        name: "burst-window-halved",
        text: "if now - tonumber(sub(first, {{entry_ms}})) < burst_window then",
        replacement: "if now - tonumber(sub(first, {{entry_ms}})) < burst_window / 2 then",
    },
    LuaMutant {
        name: "count-not-marked",
        text: "if flag == '0' then mark_unflushed(bucket_key(record_key, 'unflushed'), id_of(record_key)) end",
        replacement: "",
    },
    // write_record.lua
    LuaMutant {
        name: "fill-forgets-flushed-count",
        text: "merge(tonumber(ARGV[13]), tonumber(ARGV[14]))",
        replacement: "",
    },
    LuaMutant {
        name: "fill-ignores-fence",
        text: "if call('GET', KEYS[3]) ~= ARGV[2] then",
        replacement: "if false then",
    },
    LuaMutant {
        name: "change-not-published",
        text: "  publish_change(KEYS[1])\n  call('SET', KEYS[3]",
        replacement: "  call('SET', KEYS[3]",
    },
    LuaMutant { name: "publish-keeps-fence", text: "  call('SET', KEYS[3], ARGV[2])\n", replacement: "" },
    LuaMutant {
        name: "generation-not-compared",
        text: "if old_generation > generation then",
        replacement: "if false then",
    },
    LuaMutant {
        name: "epoch-not-compared",
        text: "local same_epoch = old and tonumber(sub(old, {{burst_epoch}})) == tonumber(ARGV[5])",
        replacement: "local same_epoch = old",
    },
    LuaMutant { name: "publish-forgets-count", text: "  merge(today, count)\n", replacement: "" },
    LuaMutant {
        name: "publish-forgets-pause",
        text: "if (is_current and same_epoch and sub(old, {{paused}}) == '1') or",
        replacement: "if",
    },
    LuaMutant {
        name: "fill-forgets-pending-pause",
        text: " or call('HEXISTS', KEYS[4], pending_field) == 1 then",
        replacement: " then",
    },
    // confirm_flush.lua
    LuaMutant { name: "changed-count-confirmed", text: "if columns == flushed then", replacement: "if true then" },
    // reconcile_demo.lua
    LuaMutant {
        name: "demo-batch-counted-again",
        text: "if not call('SET', KEYS[2], 1, 'NX', 'PX', {{RECORD_TTL_MS}}) then return 1 end",
        replacement: "",
    },
    // reconcile.lua
    LuaMutant {
        name: "known-batch-counted-again",
        text: "if last_batch and tonumber(last_batch) >= tonumber(ARGV[12]) then",
        replacement: "if false then",
    },
    LuaMutant { name: "early-batch-reconciled", text: "if is_too_early then", replacement: "if false then" },
    LuaMutant { name: "negative-count-ignored", text: "'(%d+):(-?%d+)'", replacement: "'(%d+):(%d+)'" },
    LuaMutant {
        name: "unconfirmed-not-searched",
        text: "if is_logged[mark == 0 and entry or marked_entry(entry, mark)] then",
        replacement: "if false then",
    },
    LuaMutant {
        name: "first-attempt-trusted",
        text: "if first_sent and not is_first_attempt_known() then",
        replacement: "if false then",
    },
    LuaMutant { name: "reconciled-log-not-trimmed", text: "call('LTRIM', KEYS[2], log_length, -1)", replacement: "" },
    LuaMutant {
        name: "reconciled-requests-not-logged",
        text: "if same_epoch and #new_entries > 0 then",
        replacement: "if false then",
    },
    LuaMutant {
        name: "reconciled-pause-dropped",
        text: "if ARGV[7] ~= '' and same_epoch and exceeds_burst_limit(ARGV[7]) then",
        replacement: "if false then",
    },
];

/// The source of a script, changed by the selected mutant.
pub(super) fn mutate(source: &str) -> String {
    let selected = LUA_MUTANTS.iter().find(|mutant| is_mutant(mutant.name));
    selected.map_or_else(|| source.to_owned(), |mutant| source.replace(mutant.text, mutant.replacement))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_mutant_changes_one_place_of_one_script() {
        let scripts = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scripts")).expect("scripts exist");
        let sources: Vec<String> = scripts
            .map(|entry| entry.expect("directory is readable").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "lua"))
            .map(|path| fs::read_to_string(path).expect("script is readable"))
            .collect();
        for mutant in LUA_MUTANTS {
            let places: usize = sources.iter().map(|source| source.matches(mutant.text).count()).sum();
            assert_eq!(places, 1, "{}", mutant.name);
        }
    }
}
