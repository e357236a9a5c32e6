//! The durable store: PostgreSQL, its schema, and what this node asks of it.

use store::{StoreError, Vitals};

use super::clocks::Clock;
use super::finding::{Finding, Findings, wrong};
use super::{Examined, told};
use crate::assemble::{background_store, node_connections_max};
use crate::config::{Config, without_password};

const ABOUT: &str = "durable store";
/// The oldest version that has all that the schema uses; it needs no extension.
const VERSION_MIN: i32 = 15;
/// PostgreSQL keeps this many connections for its superuser, if it was not told otherwise.
const SUPERUSER_CONNECTIONS: u32 = 3;

pub(super) async fn examine(config: &Config) -> Examined {
    let examined = match background_store(config, "ipseity-doctor") {
        Ok(store) => store.examine().await,
        Err(error) => return sick(told(&error)),
    };
    match examined {
        Ok(vitals) => Examined {
            findings: judge(&vitals, config),
            clocks: vec![Clock { of: "PostgreSQL".to_owned(), ahead_ms: vitals.ahead_ms }],
        },
        Err(error) => sick(unreachable(&without_password(&config.store.url), &error)),
    }
}

fn sick(says: String) -> Examined {
    Examined { findings: wrong(ABOUT, says), clocks: Vec::new() }
}

fn unreachable(url: &str, error: &StoreError) -> String {
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    if error.refuses_credentials() {
        return format!(
            "PostgreSQL at {url} refuses the role or its password: put the right ones into [store] url, or let the role in (`create role`, pg_hba.conf)."
        );
    }
    if error.lacks_database() {
        return format!(
            "PostgreSQL at {url} has no such database: make it with `createdb`, then run `ipseity migrate`, or name another in [store] url."
        );
    }
    format!(
        "PostgreSQL at {url} does not answer ({cause}): start it, or name the right address in [store] url and let this machine reach it."
    )
}

fn judge(vitals: &Vitals, config: &Config) -> Vec<Finding> {
    let mut findings = Findings::new(ABOUT);
    if vitals.version_number / 10_000 < VERSION_MIN {
        findings.wrong(format!("PostgreSQL is version {}: upgrade it to {VERSION_MIN} or newer.", vitals.version));
    }
    if vitals.is_read_only {
        findings.wrong(
            "PostgreSQL takes no writes, as a replica or by default_transaction_read_only: name the primary in [store] url, or switch the setting off.",
        );
    }
    if vitals.encoding != "UTF8" {
        findings.wrong(format!(
            "The database is written in {}, which cannot hold every name: make one with `createdb --encoding=UTF8`.",
            vitals.encoding
        ));
    }
    if !vitals.waits_for_disk {
        findings.wrong(
            "PostgreSQL does not wait for its disk, and a power cut can destroy the database: set `fsync = on`.",
        );
    }
    if !vitals.may_write {
        findings.wrong(
            "The role of [store] url may not write every table: `grant select, insert, update, delete on all tables in schema public`, or let the role own them.",
        );
    }
    judge_schema(vitals, &mut findings);
    let (wanted, given) = (node_connections_max(config) + SUPERUSER_CONNECTIONS, vitals.connections_max);
    if i64::from(given) < i64::from(wanted) {
        findings.wrong(format!(
            "PostgreSQL takes {given} connections and this node alone may want {wanted}: raise `max_connections`, or lower connections_max of [store] and [portal]."
        ));
    }
    let took_ms = vitals.round_trip.as_secs_f64() * 1000.0;
    findings.else_well(format!(
        "PostgreSQL {}, all {} changes of the schema made, {took_ms:.1} ms away.",
        vitals.version, vitals.known
    ))
}

fn judge_schema(vitals: &Vitals, findings: &mut Findings) {
    if !vitals.broken.is_empty() {
        findings.wrong(format!(
            "The schema's changes {:?} failed halfway or are not this program's: restore the database from a backup, or ask a version that made them.",
            vitals.broken
        ));
    }
    if vitals.missing.len() == vitals.known {
        findings.wrong("The database has no schema: run `ipseity migrate`.");
    } else if !vitals.missing.is_empty() {
        findings.wrong(format!(
            "The schema lacks {} of {} changes that this version needs: run `ipseity migrate`.",
            vitals.missing.len(),
            vitals.known
        ));
    }
    if !vitals.unknown.is_empty() {
        findings.note(
            "The schema was changed by a newer version, with which this one can live: finish the upgrade of this node.",
        );
    }
}
