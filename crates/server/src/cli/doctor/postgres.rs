//! Checks PostgreSQL and its schema.

use ipseity_domain::causes;
use ipseity_store::{NO_PRIMARY, PostgresRole, PostgresServerInfo, StoreError};

use crate::cli::doctor::backend_report::{BackendReport, ClockOffset};
use crate::cli::doctor::finding::{DoctorFinding, DoctorFindings, error_sentence, single_error};
use crate::config::Config;
use crate::config::secrets::redact_url;
use crate::node::backends::{background_store, postgres_connections_per_node};

const CHECK_NAME: &str = "postgres";
/// The oldest version with all features that the schema uses. No extension is needed.
const POSTGRES_VERSION_MIN: i32 = 15;
/// Default of PostgreSQL's superuser_reserved_connections.
const SUPERUSER_CONNECTIONS: u32 = 3;

/// What PgBouncer answers to the settings of a session, and what happens if it changes the server between statements.
const POOLER_ERRORS: [&str; 2] = ["unsupported startup parameter", "prepared statement"];
const POOLER_HINT: &str = "A connection pooler such as PgBouncer is in front of PostgreSQL. Let [store] url name PostgreSQL itself: nodes pool their connections, and need settings of the session, prepared statements and LISTEN";

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
    BackendReport::failed(single_error(CHECK_NAME, message))
}

fn connection_error_message(url: &str, error: &StoreError) -> String {
    let cause = causes(error).texts().pop().unwrap_or_default();
    if error.is_auth_failure() {
        return format!(
            "PostgreSQL at {url} rejects the role or its password. Correct [store] url or allow the role (`create role`, pg_hba.conf)."
        );
    }
    if error.is_missing_database() {
        return format!(
            "PostgreSQL at {url} has no such database. Create it with `createdb` and run `ipseity migrate`, or correct [store] url."
        );
    }
    if POOLER_ERRORS.iter().any(|error| cause.contains(error)) {
        return format!("{POOLER_HINT} ({cause} at {url}).");
    }
    if let Some(code) = error.sqlstate() {
        return rejection_message(url, &code, &cause);
    }
    if let Some(start) = cause.find(NO_PRIMARY) {
        return format!(
            "PostgreSQL at {url} cannot be used, because {}. Start the servers that are unreachable, correct the role or password if one rejects it, or promote a standby.",
            &cause[start..]
        );
    }
    if cause.contains("certificate") {
        return format!(
            "The certificate of PostgreSQL at {url} is not trusted ({cause}). Add `sslrootcert=FILE` to [store] url, or use the name in the certificate."
        );
    }
    format!("PostgreSQL at {url} is unreachable ({cause}). Start it, or correct [store] url and check the network.")
}

/// PostgreSQL runs and answers with an error.
fn rejection_message(url: &str, code: &str, cause: &str) -> String {
    const INSUFFICIENT_PRIVILEGE: &str = "42501";
    const TOO_MANY_CONNECTIONS: &str = "53300";
    let fix = match code {
        INSUFFICIENT_PRIVILEGE => {
            "Run `create role ipseity_node` and `grant ipseity_node to ROLE`, then `ipseity migrate` as the owner of the tables"
        }
        TOO_MANY_CONNECTIONS => {
            "Raise `max_connections` or the limit of the role (`alter role ROLE connection limit`), or lower [store] connections_max"
        }
        _ => "See the log of PostgreSQL, or correct [store] url",
    };
    format!("PostgreSQL at {url} rejects the connection or a statement ({cause}). {fix}.")
}

fn check_postgres_server(info: &PostgresServerInfo, config: &Config) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new(CHECK_NAME);
    if info.version_number / 10_000 < POSTGRES_VERSION_MIN {
        findings
            .error(format!("PostgreSQL {} is too old. Upgrade it to {POSTGRES_VERSION_MIN} or newer.", info.version));
    }
    if let Some(error) = &info.write_error {
        findings.error(format!("PostgreSQL cannot commit ({error}). Free disk space on its machine, and see its log."));
    }
    if info.is_read_only {
        findings.error(
            "PostgreSQL is read-only: it is a replica, or default_transaction_read_only is on. Point [store] url to the primary or turn the setting off.",
        );
    }
    if info.encoding != "UTF8" {
        findings.error(format!(
            "The encoding of the database is {}, which cannot store every name. Create a database with `createdb --template=template0 --encoding=UTF8`.",
            info.encoding
        ));
    }
    if !info.fsync {
        findings.error("PostgreSQL runs without fsync, so a power failure can destroy the database. Set `fsync = on`.");
    }
    if !info.can_write {
        findings.error(
            "The role of [store] url cannot write to every table or call every function. Run `create role ipseity_node` and `grant ipseity_node to ROLE`, then `ipseity migrate` as the owner of the tables.",
        );
    }
    if !info.can_read_identity {
        findings.error(
            "The role of [store] url cannot read the identity of the server, so nodes do not notice a failover. Run `grant execute on function pg_control_system(), pg_walfile_name(pg_lsn), pg_current_wal_lsn() to ROLE`.",
        );
    }
    if !info.has_session_settings {
        findings.error(format!("{POOLER_HINT} (the settings of the session are lost)."));
    }
    check_schema(info, &mut findings);
    let (connections_needed, connections_allowed) =
        (postgres_connections_per_node(config) + SUPERUSER_CONNECTIONS, info.connections_max);
    if i64::from(connections_allowed) < i64::from(connections_needed) {
        findings.error(format!(
            "PostgreSQL allows {connections_allowed} connections, but this node alone may open {connections_needed}. Raise `max_connections`, or lower [store] connections_max or [portal] postgres_connections_max."
        ));
    }
    for server in &info.others {
        match server.role {
            PostgresRole::Standby => {}
            PostgresRole::Primary { .. } => findings.warning(format!(
                "{} and {} both accept writes. Make one of them a standby: a node uses the one that was promoted last.",
                info.address, server.address
            )),
            PostgresRole::Rejecting { .. } => findings.warning(format!(
                "{server}, so it cannot take over. Allow the role of [store] url on it, or remove it from [store] url."
            )),
            PostgresRole::Unreachable { .. } => {
                findings.warning(format!("{server}, so it cannot take over. Start it, or remove it from [store] url."));
            }
        }
    }
    let round_trip_ms = info.round_trip.as_secs_f64() * 1000.0;
    findings.ok_unless_error(format!(
        "PostgreSQL {} at {}, all {} migrations applied, round trip {round_trip_ms:.1} ms.",
        info.version, info.address, info.known_migrations
    ))
}

fn check_schema(info: &PostgresServerInfo, findings: &mut DoctorFindings) {
    if !info.invalid_migrations.is_empty() {
        findings.error(format!(
            "Migrations {:?} failed halfway or differ from those of this version. Restore the database from a backup, or use the version that applied them.",
            info.invalid_migrations
        ));
    }
    if info.pending_migrations.len() == info.known_migrations {
        findings.error("The database has no schema. Run `ipseity migrate`.");
    } else if !info.pending_migrations.is_empty() {
        findings.error(format!(
            "The schema lacks {} of {} migrations. Run `ipseity migrate`.",
            info.pending_migrations.len(),
            info.known_migrations
        ));
    }
    if !info.unknown_migrations.is_empty() {
        findings.warning("The schema is from a newer, compatible version. Finish the upgrade of this node.");
    }
}
