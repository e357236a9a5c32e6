//! All mutants, and what finds each.

use crate::check::Check;

/// A known defect, by the name that the code asks for.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    pub(crate) check: Check,
}

/// What CI runs.
const SHORT: [&str; 3] = ["accepts-revoked-keys", "no-local-daily-limit", "fill-forgets-flushed-count"];

impl Mutant {
    pub(crate) fn is_short(&self) -> bool {
        SHORT.contains(&self.name)
    }
}

const fn short_run(kind: &'static str, seed: u64) -> Check {
    Check::Faults { kind, seed, is_short: true }
}

const fn long_run(kind: &'static str, seed: u64) -> Check {
    Check::Faults { kind, seed, is_short: false }
}

const fn test(package: &'static str, name: &'static str) -> Check {
    Check::Test { package, is_unit: false, name }
}

const fn unit_test(package: &'static str, name: &'static str) -> Check {
    Check::Test { package, is_unit: true, name }
}

const API: &str = "ipseity-api";
const KEYS: &str = "ipseity-keys";
const LEDGER: &str = "ipseity-ledger";

/// Ordered by check, so that the control of a check is followed by its mutants.
pub(crate) const MUTANTS: &[Mutant] = &[
    // Fault runs.
    Mutant { name: "accepts-revoked-keys", check: short_run("redis-data-lost", 4) },
    Mutant { name: "no-local-daily-limit", check: short_run("redis-data-lost", 4) },
    Mutant { name: "fill-forgets-flushed-count", check: short_run("redis-data-lost", 4) },
    Mutant { name: "refusals-flushed-twice", check: short_run("redis-data-lost", 4) },
    Mutant { name: "secret-not-compared", check: short_run("redis-data-lost", 4) },
    Mutant { name: "memory-accepts-revoked-keys", check: long_run("redis-data-lost", 2) },
    Mutant { name: "no-pending-in-local-count", check: long_run("redis-killed", 4) },
    Mutant { name: "pending-charge-dropped", check: long_run("redis-killed", 4) },
    Mutant { name: "deactivated-not-compared", check: short_run("no-fault", 1) },
    Mutant { name: "publish-forgets-count", check: short_run("no-fault", 1) },
    Mutant { name: "flush-confirmed-without-writing", check: short_run("no-fault", 1) },
    Mutant { name: "count-not-marked", check: short_run("no-fault", 1) },
    Mutant { name: "notices-ignored", check: short_run("sites-without-fault", 1) },
    Mutant { name: "unconfirmed-charge-dropped", check: long_run("redis-replies-dropped", 4) },
    Mutant { name: "unconfirmed-taken-for-uncharged", check: long_run("redis-replies-dropped", 4) },
    Mutant { name: "unconfirmed-not-searched", check: long_run("redis-replies-dropped", 4) },
    Mutant { name: "batch-number-not-kept", check: long_run("redis-replies-dropped", 4) },
    Mutant { name: "known-batch-counted-again", check: long_run("redis-replies-dropped", 4) },
    Mutant { name: "expired-charge-applied", check: short_run("redis-requests-held", 5) },
    Mutant { name: "no-local-burst-limit", check: long_run("paused-while-redis-is-down", 2) },
    Mutant { name: "pause-not-recorded", check: long_run("redis-restored", 1) },
    Mutant { name: "incarnation-not-compared", check: long_run("redis-restored", 1) },
    Mutant { name: "one-breaker-for-all-shards", check: long_run("shard-killed", 2) },
    // Tests of admission.
    Mutant {
        name: "in-flight-not-limited",
        check: unit_test(
            API,
            "admission::open_keys::tests::admitted_requests_in_flight_are_limited_and_freed_by_their_end",
        ),
    },
    Mutant {
        name: "old-verdict-opens",
        check: unit_test(
            API,
            "admission::open_keys::tests::verdict_of_a_charge_that_began_before_a_closing_does_not_open",
        ),
    },
    Mutant {
        name: "restriction-version-not-compared",
        check: test(API, "restrictions::every_change_counts_from_the_next_request"),
    },
    Mutant {
        name: "refused-without-charge",
        check: test(API, "restrictions::every_change_counts_from_the_next_request"),
    },
    Mutant {
        name: "missing-restrictions-admit",
        check: test(API, "restrictions::restrictions_that_cannot_be_read_admit_nobody"),
    },
    Mutant { name: "uses-key-in-doubt", check: test(API, "revocation::key_in_doubt_is_not_admitted") },
    Mutant { name: "notification-ignored", check: test(API, "revocation::key_in_doubt_is_not_admitted") },
    Mutant {
        name: "memory-forgets-pauses",
        check: test(API, "revocation::pause_that_redis_reported_is_kept_without_it"),
    },
    Mutant {
        name: "looser-verdict-wins",
        check: test(API, "burst_limit::node_remembers_its_requests_when_redis_loses_its_memory"),
    },
    Mutant {
        name: "refused-charge-not-taken-back",
        check: test(API, "burst_limit::node_remembers_its_requests_when_redis_loses_its_memory"),
    },
    Mutant {
        name: "negative-count-ignored",
        check: test(API, "burst_limit::node_remembers_its_requests_when_redis_loses_its_memory"),
    },
    Mutant {
        name: "fill-ignores-node-count",
        check: test(API, "burst_limit::node_remembers_its_requests_when_redis_loses_its_memory"),
    },
    Mutant {
        name: "no-gate-on-new-connections",
        check: test(API, "breaker::new_connection_is_not_used_before_its_gate_opens"),
    },
    Mutant {
        name: "memory-keeps-burst-epoch",
        check: unit_test(
            API,
            "admission::degraded::local_limiter::tests::resume_clears_the_local_log_and_old_records_are_ignored",
        ),
    },
    Mutant {
        name: "memory-keeps-previous-secret",
        check: unit_test("ipseity-domain", "record::tests::previous_secret_is_accepted_until_it_expires"),
    },
    // Tests of key changes.
    Mutant { name: "outbox-row-not-published", check: test(KEYS, "outbox::every_node_can_complete_a_change") },
    Mutant {
        name: "superseded-change-not-repaired",
        check: test(KEYS, "changes::change_that_meets_a_newer_record_is_repaired_and_counted"),
    },
    Mutant { name: "resume-ignores-redis", check: test(KEYS, "changes::resume_clears_a_pause_wherever_it_is_stored") },
    Mutant {
        name: "deployment-always-matches",
        check: test(KEYS, "deployment::second_redis_is_not_trusted_while_other_nodes_use_the_first"),
    },
    Mutant {
        name: "data-set-not-read-again",
        check: test(KEYS, "deployment::old_data_in_a_running_redis_is_not_trusted"),
    },
    // Tests of the ledger.
    Mutant {
        name: "near-limit-not-published",
        check: test(LEDGER, "open_slots::slots_are_open_until_the_burst_limit_is_near"),
    },
    Mutant {
        name: "near-limit-ignored",
        check: test(LEDGER, "open_slots::slots_are_open_until_the_burst_limit_is_near"),
    },
    Mutant {
        name: "clock-falls-ignored",
        check: test(LEDGER, "clock_falls::key_below_its_limit_is_not_paused_when_the_clock_is_set_back"),
    },
    Mutant { name: "change-not-published", check: test(LEDGER, "open_slots::every_change_of_a_key_is_reported") },
    Mutant {
        name: "reconciled-requests-not-logged",
        check: test(LEDGER, "reconcile::reconciled_requests_count_toward_the_burst_limit"),
    },
    Mutant {
        name: "database-not-in-incarnation",
        check: test(LEDGER, "trusted_stores::record_of_another_database_is_filled_again"),
    },
    Mutant {
        name: "sweep-skips-earlier-days",
        check: test(LEDGER, "sweep::unflushed_count_is_kept_when_its_column_is_needed"),
    },
    Mutant {
        name: "publish-forgets-pause",
        check: test(LEDGER, "pause::recorded_pause_survives_a_change_made_before_it"),
    },
    Mutant {
        name: "next-day-not-marked",
        check: test(LEDGER, "arrival::charge_over_midnight_is_taken_back_from_the_day_it_was_charged_to"),
    },
    Mutant {
        name: "lost-log-not-noticed",
        check: test(LEDGER, "unverifiable::charge_is_unverifiable_if_the_log_expired_while_the_clock_was_ahead"),
    },
    Mutant { name: "demo-batch-counted-again", check: test(LEDGER, "reconcile::demo_batch_is_reconciled_once") },
    // The model of the ledger.
    Mutant { name: "previous-secret-never-expires", check: Check::Model },
    Mutant { name: "future-day-kept", check: Check::Model },
    Mutant { name: "yesterday-zeroed", check: Check::Model },
    Mutant { name: "paused-not-compared", check: Check::Model },
    Mutant { name: "pause-not-pending", check: Check::Model },
    Mutant { name: "log-start-not-moved", check: Check::Model },
    Mutant { name: "log-kept-at-clock-step", check: Check::Model },
    Mutant { name: "daily-limit-plus-one", check: Check::Model },
    Mutant { name: "quota-refusal-logged-as-charge", check: Check::Model },
    Mutant { name: "log-taken-for-sorted", check: Check::Model },
    Mutant { name: "burst-limit-plus-one", check: Check::Model },
    Mutant { name: "burst-window-halved", check: Check::Model },
    Mutant { name: "fill-ignores-fence", check: Check::Model },
    Mutant { name: "publish-keeps-fence", check: Check::Model },
    Mutant { name: "generation-not-compared", check: Check::Model },
    Mutant { name: "epoch-not-compared", check: Check::Model },
    Mutant { name: "fill-forgets-pending-pause", check: Check::Model },
    Mutant { name: "changed-count-confirmed", check: Check::Model },
    Mutant { name: "early-batch-reconciled", check: Check::Model },
    Mutant { name: "first-attempt-trusted", check: Check::Model },
    Mutant { name: "reconciled-log-not-trimmed", check: Check::Model },
    Mutant { name: "reconciled-pause-dropped", check: Check::Model },
];
