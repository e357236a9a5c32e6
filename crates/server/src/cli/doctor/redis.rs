//! Checks Redis or Valkey.

use std::sync::Arc;

use ipseity_domain::causes;
use ipseity_ledger::{RedisServerInfo, SentinelInfo};

use crate::cli::doctor::backend_report::{BackendReport, ClockOffset};
use crate::cli::doctor::finding::{DoctorFinding, DoctorFindings, error_sentence, single_error};
use crate::config::Config;
use crate::config::secrets::redact_urls;
use crate::node::backends::background_ledger;

const CHECK_NAME: &str = "redis";
/// The oldest major versions with all features that the scripts use.
const REDIS_VERSION_MIN: u32 = 7;
const VALKEY_VERSION_MIN: u32 = 8;
const MEMORY_USED_PERCENT_MAX: u64 = 80;
const SENTINELS_MIN: usize = 3;

pub(super) async fn check_redis(config: &Config) -> BackendReport {
    let ledger = match background_ledger(config, &Arc::default()) {
        Ok(ledger) => ledger,
        Err(error) => return redis_error(error_sentence(&error)),
    };
    match ledger.diagnostics().await {
        Ok(servers) => BackendReport {
            findings: servers
                .iter()
                .flat_map(|server| check_redis_server(server, config))
                .chain(check_sentinels(&ledger.sentinels().await))
                .collect(),
            clocks: servers
                .iter()
                .map(|server| ClockOffset { source: display_name(server), offset_ms: server.clock_offset_ms })
                .collect(),
        },
        Err(error) => {
            let url = redact_urls(&config.ledger.url);
            if error.is_auth_failure() {
                return redis_error(format!(
                    "Redis at {url} rejects the username or password. Correct [ledger] url: redis://username:password@host."
                ));
            }
            let cause = causes(&error).texts().pop().unwrap_or_default();
            match error.server_code().as_deref() {
                Some("NOPERM") => {
                    return redis_error(format!(
                        "Redis at {url} denies a command ({cause}). Grant its user the rights that docs/operations/redis.md lists."
                    ));
                }
                Some(_) => {
                    return redis_error(format!(
                        "Redis at {url} rejects a command ({cause}). Correct the cause on that server, or correct [ledger] url."
                    ));
                }
                None => {}
            }
            redis_error(match &*cause {
                cause if cause.contains("CertificateRequired") => format!(
                    "Redis at {url} asks for a certificate ({cause}). Set [ledger] certificate_file and private_key_file."
                ),
                cause if cause.contains("certificate") => format!(
                    "The certificate of Redis at {url} is not trusted ({cause}). Set [ledger] ca_file, or use the name in the certificate."
                ),
                cause => format!(
                    "Redis at {url} is unreachable ({cause}). Start it, or correct [ledger] url and check the network."
                ),
            })
        }
    }
}

fn check_sentinels(sentinels: &[SentinelInfo]) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new(CHECK_NAME);
    if sentinels.is_empty() {
        return Vec::new();
    }
    let mut primaries: Vec<&String> = Vec::new();
    for sentinel in sentinels {
        match &sentinel.primary {
            Ok(primary) if primaries.contains(&primary) => {}
            Ok(primary) => primaries.push(primary),
            Err(cause) => findings.warning(format!(
                "Sentinel at {} reports no primary ({cause}). Start it, or correct [ledger] url.",
                sentinel.address
            )),
        }
    }
    if let [first, second, ..] = primaries[..] {
        findings.warning(format!(
            "Sentinels report different primaries: {first} and {second}. Nodes use the one of the latest failover. Wait for its end, or check the network between the Sentinels."
        ));
    }
    if sentinels.len() < SENTINELS_MIN {
        findings.warning(format!(
            "[ledger] url names {} of the Sentinels. Name all, at least {SENTINELS_MIN}, so that one can fail.",
            sentinels.len()
        ));
    }
    let names = sentinels.iter().map(|sentinel| sentinel.address.as_str()).collect::<Vec<_>>().join(", ");
    findings.ok_unless_error(format!("Sentinel names the primary ({names})."))
}

fn redis_error(message: String) -> BackendReport {
    BackendReport::failed(single_error(CHECK_NAME, message))
}

fn display_name(server: &RedisServerInfo) -> String {
    format!("{} at {}", server.product, server.address)
}

fn check_redis_server(server: &RedisServerInfo, config: &Config) -> Vec<DoctorFinding> {
    let timeout_ms = config.ledger.timeout_ms;
    let mut findings = DoctorFindings::new(CHECK_NAME);
    let name = display_name(server);
    let version_min = if server.product == "Valkey" { VALKEY_VERSION_MIN } else { REDIS_VERSION_MIN };
    let major = server.version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major < version_min) {
        findings.error(format!(
            "{name} has version {}, which is too old. Upgrade it to {version_min} or newer.",
            server.version
        ));
    }
    if !server.is_primary {
        findings.error(format!(
            "{name} is a replica and rejects writes. Add its primary to [ledger] url; keep the replica there if it may be promoted."
        ));
    }
    if server.cluster_ok == Some(false) {
        findings.error(format!(
            "The cluster of {name} does not serve every slot. Restore the lost servers, then run `redis-cli --cluster check`."
        ));
    }
    if !server.has_change_channel && !config.home.listen.is_empty() {
        findings.error(format!(
            "The user of {name} may not publish and subscribe, so remote nodes wait for home even if they are optimistic. Grant it with `ACL SETUSER`: &ipseity:changes +publish +subscribe +ping."
        ));
    }
    check_memory(server, &name, &mut findings);
    check_persistence(server, &name, &mut findings);
    let round_trip_ms = server.round_trip.as_secs_f64() * 1000.0;
    if server.round_trip.as_millis() >= u128::from(timeout_ms) {
        findings.error(format!(
            "The round trip to {name} takes {round_trip_ms:.1} ms, but [ledger] timeout_ms is {timeout_ms}. Move Redis closer or raise the timeout."
        ));
    }
    findings.ok_unless_error(format!(
        "{} {} at {}, round trip {round_trip_ms:.1} ms.",
        server.product, server.version, server.address
    ))
}

fn check_memory(server: &RedisServerInfo, name: &str, findings: &mut DoctorFindings) {
    if server.maxmemory_bytes == 0 {
        return;
    }
    if server.maxmemory_policy != "noeviction" {
        findings.error(format!(
            "{name} evicts records when its memory is full (maxmemory-policy {}), and evicted counts restart from the last usage flush. Set `maxmemory-policy noeviction`.",
            server.maxmemory_policy
        ));
    }
    let percent = server.used_memory_bytes.saturating_mul(100) / server.maxmemory_bytes;
    if percent >= MEMORY_USED_PERCENT_MAX {
        findings.error(format!(
            "{name} uses {percent}% of its memory and rejects writes when it is full. Raise `maxmemory`; a key at its burst limit needs about 3 kB."
        ));
    }
}

fn check_persistence(server: &RedisServerInfo, name: &str, findings: &mut DoctorFindings) {
    if server.last_save_failed {
        findings.error(format!(
            "{name} failed to save its data the last time and may reject writes. Check its log for a full disk or missing permissions."
        ));
    }
    match (server.aof_enabled, server.rdb_enabled) {
        (true, _) => {}
        (false, Some(false)) => findings.warning(format!(
            "{name} stores nothing on disk, so a restart loses the counts since the last usage flush. Set `appendonly yes`."
        )),
        (false, Some(true)) => findings.warning(format!(
            "{name} only saves snapshots, so a restart loses the counts since the last snapshot and the last usage flush. Set `appendonly yes` to lose less."
        )),
        (false, None) => {
            findings.warning(format!("{name} does not report whether it saves snapshots. Make sure that it stores its data."));
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
            has_change_channel: true,
        }
    }

    fn errors_with(change: impl Fn(&mut RedisServerInfo)) -> Vec<String> {
        let mut server = healthy_server();
        change(&mut server);
        let mut config = Config::load(None).expect("default settings are valid");
        (config.ledger.timeout_ms, config.home.listen) = (50, "127.0.0.1:9443".to_owned());
        let errors =
            check_redis_server(&server, &config).into_iter().filter(|finding| finding.severity == Severity::Error);
        errors.map(|finding| finding.message).collect()
    }

    #[test]
    fn healthy_redis_server_has_no_errors() {
        assert!(errors_with(|_| {}).is_empty());
        // Without maxmemory, the policy has no effect.
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
        assert_error(
            |server| "6.2.14".clone_into(&mut server.version),
            "has version 6.2.14, which is too old. Upgrade it to 7",
        );
        assert_error(|server| (server.product, server.version) = ("Valkey", "7.2.5".to_owned()), "Upgrade it to 8");
        assert_error(|server| server.last_save_failed = true, "full disk");
        assert_error(|server| server.has_change_channel = false, "&ipseity:changes");
        assert_error(|server| server.cluster_ok = Some(false), "every slot");
        assert_error(|server| server.round_trip = Duration::from_millis(80), "takes 80.0 ms");
    }
}
