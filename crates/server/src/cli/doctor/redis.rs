//! The counter store: Redis or Valkey, and what it must keep to.

use ipseity_ledger::RedisServerInfo;

use crate::cli::doctor::clocks::ClockOffset;
use crate::cli::doctor::finding::{DoctorFinding, DoctorFindings, single_error};
use crate::cli::doctor::{BackendReport, error_sentence};
use crate::config::{Config, redact_urls};
use crate::node::background_ledger;

const CHECK_NAME: &str = "counter store";
/// The oldest major versions that have all that the scripts use.
const REDIS_VERSION_MIN: u32 = 7;
const VALKEY_VERSION_MIN: u32 = 8;
/// Share of its memory, in percent, from which on a server is nearly full.
const MEMORY_USED_PERCENT_MAX: u64 = 80;

pub(super) async fn check_redis(config: &Config) -> BackendReport {
    let diagnostics = match background_ledger(config) {
        Ok(ledger) => ledger.diagnostics().await,
        Err(error) => return redis_error(error_sentence(&error)),
    };
    match diagnostics {
        Ok(servers) => BackendReport {
            findings: servers.iter().flat_map(|server| check_redis_server(server, config.ledger.timeout_ms)).collect(),
            clocks: servers
                .iter()
                .map(|server| ClockOffset { source: display_name(server), offset_ms: server.clock_offset_ms })
                .collect(),
        },
        Err(error) => {
            let url = redact_urls(&config.ledger.url);
            if error.is_auth_failure() {
                return redis_error(format!(
                    "Redis at {url} refuses the name or the password: put the right ones into [ledger] url, as redis://name:password@host."
                ));
            }
            let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            redis_error(format!(
                "Redis at {url} does not answer ({cause}): start it, or name the right address in [ledger] url and let this machine reach it."
            ))
        }
    }
}

fn redis_error(message: String) -> BackendReport {
    BackendReport { findings: single_error(CHECK_NAME, message), clocks: Vec::new() }
}

fn display_name(server: &RedisServerInfo) -> String {
    format!("{} at {}", server.product, server.address)
}

fn check_redis_server(server: &RedisServerInfo, timeout_ms: u64) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new(CHECK_NAME);
    let name = display_name(server);
    let version_min = if server.product == "Valkey" { VALKEY_VERSION_MIN } else { REDIS_VERSION_MIN };
    let major = server.version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major < version_min) {
        findings.error(format!("{name} is version {}: upgrade it to {version_min} or newer.", server.version));
    }
    if !server.is_primary {
        findings.error(format!(
            "{name} is a replica and takes no charges: name its primary in [ledger] url, beside the replica if it may be promoted."
        ));
    }
    if server.cluster_ok == Some(false) {
        findings.error(format!(
            "The cluster of {name} does not serve every slot: bring the lost servers back, then see `redis-cli --cluster check`."
        ));
    }
    check_memory(server, &name, &mut findings);
    check_persistence(server, &name, &mut findings);
    let round_trip_ms = server.round_trip.as_secs_f64() * 1000.0;
    if server.round_trip.as_millis() >= u128::from(timeout_ms) {
        findings.error(format!(
            "{name} is {round_trip_ms:.1} ms away, and [ledger] timeout_ms gives a verdict {timeout_ms} ms: bring it nearer, or raise the setting."
        ));
    }
    findings.ok_unless_error(format!(
        "{} {} at {}, {round_trip_ms:.1} ms away.",
        server.product, server.version, server.address
    ))
}

fn check_memory(server: &RedisServerInfo, name: &str, findings: &mut DoctorFindings) {
    if server.maxmemory_bytes == 0 {
        return;
    }
    if server.maxmemory_policy != "noeviction" {
        findings.error(format!(
            "{name} drops records when its memory is full (maxmemory-policy {}), and a dropped count starts from the last roll-up: set `maxmemory-policy noeviction`.",
            server.maxmemory_policy
        ));
    }
    let percent = server.used_memory_bytes.saturating_mul(100) / server.maxmemory_bytes;
    if percent >= MEMORY_USED_PERCENT_MAX {
        findings.error(format!(
            "{name} uses {percent} % of its memory and refuses charges once it is full: raise `maxmemory`; a key takes about 3 kB at its burst limit."
        ));
    }
}

fn check_persistence(server: &RedisServerInfo, name: &str, findings: &mut DoctorFindings) {
    if server.last_save_failed {
        findings.error(format!(
            "{name} could not write its file the last time and may refuse charges: look for a full disk or missing rights in its log."
        ));
    }
    match (server.aof_enabled, server.rdb_enabled) {
        (true, _) => {}
        (false, Some(false)) => findings.error(format!(
            "{name} keeps nothing on disk, and a restart loses what was counted since the last roll-up: set `appendonly yes`."
        )),
        (false, Some(true)) => findings.warning(format!(
            "{name} saves snapshots only, and a restart loses what was counted since the last of them and the last roll-up: `appendonly yes` loses less."
        )),
        (false, None) => {
            findings.warning(format!("{name} does not tell whether it keeps snapshots: see that it keeps its data."));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::finding::Severity;
    use super::*;

    fn healthy_server() -> RedisServerInfo {
        RedisServerInfo {
            address: "127.0.0.1:6379".to_owned(),
            product: "Redis",
            version: "7.0.15".to_owned(),
            is_primary: true,
            cluster_ok: None,
            maxmemory_policy: "noeviction".to_owned(),
            maxmemory_bytes: 0,
            used_memory_bytes: 1,
            aof_enabled: true,
            rdb_enabled: Some(false),
            last_save_failed: false,
            clock_offset_ms: 0,
            round_trip: Duration::from_micros(200),
        }
    }

    fn errors_with(change: impl Fn(&mut RedisServerInfo)) -> Vec<String> {
        let mut server = healthy_server();
        change(&mut server);
        let errors = check_redis_server(&server, 50).into_iter().filter(|finding| finding.severity == Severity::Error);
        errors.map(|finding| finding.message).collect()
    }

    #[test]
    fn healthy_redis_server_has_no_errors() {
        assert!(errors_with(|_| {}).is_empty());
        // A policy without a bound on memory drops nothing.
        assert!(errors_with(|server| "allkeys-lru".clone_into(&mut server.maxmemory_policy)).is_empty());
        assert!(errors_with(|server| (server.aof_enabled, server.rdb_enabled) = (false, Some(true))).is_empty());
        assert!(errors_with(|server| (server.product, server.version) = ("Valkey", "8.0.1".to_owned())).is_empty());
    }

    #[test]
    fn unhealthy_redis_server_is_reported() {
        let assert_error = |change: fn(&mut RedisServerInfo), expected: &str| {
            let errors = errors_with(change);
            assert!(errors.len() == 1 && errors[0].contains(expected), "{expected}: {errors:?}");
        };
        assert_error(|server| "6.2.14".clone_into(&mut server.version), "is version 6.2.14: upgrade it to 7");
        assert_error(|server| (server.product, server.version) = ("Valkey", "7.2.5".to_owned()), "upgrade it to 8");
        assert_error(|server| server.last_save_failed = true, "full disk");
        assert_error(|server| server.cluster_ok = Some(false), "every slot");
        assert_error(|server| server.round_trip = Duration::from_millis(80), "80.0 ms away");
    }
}
