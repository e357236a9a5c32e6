//! The durable store: PostgreSQL, its schema, and what this node asks of it.

use ipseity_store::{PostgresServerInfo, StoreError};

use crate::cli::doctor::clocks::ClockOffset;
use crate::cli::doctor::finding::{DoctorFinding, DoctorFindings, single_error};
use crate::cli::doctor::{BackendReport, error_sentence};
use crate::config::{Config, redact_url};
use crate::node::{background_store, postgres_connections_per_node};

const CHECK_NAME: &str = "durable store";
/// The oldest version that has all that the schema uses; it needs no extension.
const POSTGRES_VERSION_MIN: i32 = 15;
/// PostgreSQL keeps this many connections for its superuser, if it was not told otherwise.
const SUPERUSER_CONNECTIONS: u32 = 3;

pub(super) async fn check_postgres(config: &Config) -> BackendReport {
    let diagnostics = match background_store(config, "ipseity-doctor") {
        Ok(store) => store.inspect_server().await,
        Err(error) => return postgres_error(error_sentence(&error)),
    };
    match diagnostics {
        Ok(info) => BackendReport {
            findings: check_postgres_server(&info, config),
            clocks: vec![ClockOffset { source: "PostgreSQL".to_owned(), offset_ms: info.clock_offset_ms }],
        },
        Err(error) => postgres_error(connection_error_message(&redact_url(&config.store.url), &error)),
    }
}

fn postgres_error(message: String) -> BackendReport {
    BackendReport { findings: single_error(CHECK_NAME, message), clocks: Vec::new() }
}

fn connection_error_message(url: &str, error: &StoreError) -> String {
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    if error.is_auth_failure() {
        return format!(
            "PostgreSQL at {url} refuses the role or its password: put the right ones into [store] url, or let the role in (`create role`, pg_hba.conf)."
        );
    }
    if error.is_missing_database() {
        return format!(
            "PostgreSQL at {url} has no such database: make it with `createdb`, then run `ipseity migrate`, or name another in [store] url."
        );
    }
    format!(
        "PostgreSQL at {url} does not answer ({cause}): start it, or name the right address in [store] url and let this machine reach it."
    )
}

fn check_postgres_server(info: &PostgresServerInfo, config: &Config) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new(CHECK_NAME);
    if info.version_number / 10_000 < POSTGRES_VERSION_MIN {
        findings
            .error(format!("PostgreSQL is version {}: upgrade it to {POSTGRES_VERSION_MIN} or newer.", info.version));
    }
    if info.is_read_only {
        findings.error(
            "PostgreSQL takes no writes, as a replica or by default_transaction_read_only: name the primary in [store] url, or switch the setting off.",
        );
    }
    if info.encoding != "UTF8" {
        findings.error(format!(
            "The database is written in {}, which cannot hold every name: make one with `createdb --encoding=UTF8`.",
            info.encoding
        ));
    }
    if !info.fsync {
        findings.error(
            "PostgreSQL does not wait for its disk, and a power cut can destroy the database: set `fsync = on`.",
        );
    }
    if !info.can_write {
        findings.error(
            "The role of [store] url may not write every table: `grant select, insert, update, delete on all tables in schema public`, or let the role own them.",
        );
    }
    check_schema(info, &mut findings);
    let (connections_needed, connections_allowed) =
        (postgres_connections_per_node(config) + SUPERUSER_CONNECTIONS, info.connections_max);
    if i64::from(connections_allowed) < i64::from(connections_needed) {
        findings.error(format!(
            "PostgreSQL takes {connections_allowed} connections and this node alone may want {connections_needed}: raise `max_connections`, or lower connections_max of [store] and [portal]."
        ));
    }
    let round_trip_ms = info.round_trip.as_secs_f64() * 1000.0;
    findings.ok_unless_error(format!(
        "PostgreSQL {}, all {} changes of the schema made, {round_trip_ms:.1} ms away.",
        info.version, info.known_migrations
    ))
}

fn check_schema(info: &PostgresServerInfo, findings: &mut DoctorFindings) {
    if !info.invalid_migrations.is_empty() {
        findings.error(format!(
            "The schema's changes {:?} failed halfway or are not this program's: restore the database from a backup, or ask a version that made them.",
            info.invalid_migrations
        ));
    }
    if info.pending_migrations.len() == info.known_migrations {
        findings.error("The database has no schema: run `ipseity migrate`.");
    } else if !info.pending_migrations.is_empty() {
        findings.error(format!(
            "The schema lacks {} of {} changes that this version needs: run `ipseity migrate`.",
            info.pending_migrations.len(),
            info.known_migrations
        ));
    }
    if !info.unknown_migrations.is_empty() {
        findings.warning(
            "The schema was changed by a newer version, with which this one can live: finish the upgrade of this node.",
        );
    }
}
