//! The counter store: Redis or Valkey, and what it must keep to.

use ledger::Vitals;

use super::clocks::Clock;
use super::finding::{Finding, Findings, wrong};
use super::{Examined, told};
use crate::assemble::background_ledger;
use crate::config::{Config, without_passwords};

const ABOUT: &str = "counter store";
/// The oldest major versions that have all that the scripts use.
const REDIS_MIN: u32 = 7;
const VALKEY_MIN: u32 = 8;
/// Share of its memory, in percent, from which on a server is nearly full.
const FULL_PERCENT: u64 = 80;

pub(super) async fn examine(config: &Config) -> Examined {
    let examined = match background_ledger(config) {
        Ok(ledger) => ledger.examine().await,
        Err(error) => return sick(told(&error)),
    };
    match examined {
        Ok(servers) => Examined {
            findings: servers.iter().flat_map(|server| judge(server, config.ledger.timeout_ms)).collect(),
            clocks: servers.iter().map(|server| Clock { of: named(server), ahead_ms: server.ahead_ms }).collect(),
        },
        Err(error) => {
            let url = without_passwords(&config.ledger.url);
            if error.refuses_credentials() {
                return sick(format!(
                    "Redis at {url} refuses the name or the password: put the right ones into [ledger] url, as redis://name:password@host."
                ));
            }
            let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            sick(format!(
                "Redis at {url} does not answer ({cause}): start it, or name the right address in [ledger] url and let this machine reach it."
            ))
        }
    }
}

fn sick(says: String) -> Examined {
    Examined { findings: wrong(ABOUT, says), clocks: Vec::new() }
}

fn named(server: &Vitals) -> String {
    format!("{} at {}", server.product, server.address)
}

fn judge(server: &Vitals, timeout_ms: u64) -> Vec<Finding> {
    let mut findings = Findings::new(ABOUT);
    let name = named(server);
    let oldest = if server.product == "Valkey" { VALKEY_MIN } else { REDIS_MIN };
    let major = server.version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major < oldest) {
        findings.wrong(format!("{name} is version {}: upgrade it to {oldest} or newer.", server.version));
    }
    if !server.is_primary {
        findings.wrong(format!(
            "{name} is a replica and takes no charges: name its primary in [ledger] url, beside the replica if it may be promoted."
        ));
    }
    if server.cluster_is_whole == Some(false) {
        findings.wrong(format!(
            "The cluster of {name} does not serve every slot: bring the lost servers back, then see `redis-cli --cluster check`."
        ));
    }
    judge_memory(server, &name, &mut findings);
    judge_keeping(server, &name, &mut findings);
    let took_ms = server.round_trip.as_secs_f64() * 1000.0;
    if server.round_trip.as_millis() >= u128::from(timeout_ms) {
        findings.wrong(format!(
            "{name} is {took_ms:.1} ms away, and [ledger] timeout_ms gives a verdict {timeout_ms} ms: bring it nearer, or raise the setting."
        ));
    }
    findings.else_well(format!("{} {} at {}, {took_ms:.1} ms away.", server.product, server.version, server.address))
}

fn judge_memory(server: &Vitals, name: &str, findings: &mut Findings) {
    if server.memory_max == 0 {
        return;
    }
    if server.eviction != "noeviction" {
        findings.wrong(format!(
            "{name} drops records when its memory is full (maxmemory-policy {}), and a dropped count starts from the last roll-up: set `maxmemory-policy noeviction`.",
            server.eviction
        ));
    }
    let percent = server.memory_used.saturating_mul(100) / server.memory_max;
    if percent >= FULL_PERCENT {
        findings.wrong(format!(
            "{name} uses {percent} % of its memory and refuses charges once it is full: raise `maxmemory`; a key takes about 3 kB at its burst limit."
        ));
    }
}

fn judge_keeping(server: &Vitals, name: &str, findings: &mut Findings) {
    if server.cannot_save {
        findings.wrong(format!(
            "{name} could not write its file the last time and may refuse charges: look for a full disk or missing rights in its log."
        ));
    }
    match (server.keeps_log, server.keeps_snapshots) {
        (true, _) => {}
        (false, Some(false)) => findings.wrong(format!(
            "{name} keeps nothing on disk, and a restart loses what was counted since the last roll-up: set `appendonly yes`."
        )),
        (false, Some(true)) => findings.note(format!(
            "{name} saves snapshots only, and a restart loses what was counted since the last of them and the last roll-up: `appendonly yes` loses less."
        )),
        (false, None) => {
            findings.note(format!("{name} does not tell whether it keeps snapshots: see that it keeps its data."));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::finding::Weight;
    use super::*;

    fn healthy() -> Vitals {
        Vitals {
            address: "127.0.0.1:6379".to_owned(),
            product: "Redis",
            version: "7.0.15".to_owned(),
            is_primary: true,
            cluster_is_whole: None,
            eviction: "noeviction".to_owned(),
            memory_max: 0,
            memory_used: 1,
            keeps_log: true,
            keeps_snapshots: Some(false),
            cannot_save: false,
            ahead_ms: 0,
            round_trip: Duration::from_micros(200),
        }
    }

    fn wrong_with(change: impl Fn(&mut Vitals)) -> Vec<String> {
        let mut server = healthy();
        change(&mut server);
        let wrong = judge(&server, 50).into_iter().filter(|finding| finding.weight == Weight::Wrong);
        wrong.map(|finding| finding.says).collect()
    }

    #[test]
    fn a_sound_server_is_left_alone() {
        assert!(wrong_with(|_| {}).is_empty());
        // A policy without a bound on memory drops nothing.
        assert!(wrong_with(|server| "allkeys-lru".clone_into(&mut server.eviction)).is_empty());
        assert!(wrong_with(|server| (server.keeps_log, server.keeps_snapshots) = (false, Some(true))).is_empty());
        assert!(wrong_with(|server| (server.product, server.version) = ("Valkey", "8.0.1".to_owned())).is_empty());
    }

    #[test]
    fn what_no_test_server_can_be_made_to_be_is_judged_too() {
        let says = |change: fn(&mut Vitals), words: &str| {
            let wrong = wrong_with(change);
            assert!(wrong.len() == 1 && wrong[0].contains(words), "{words}: {wrong:?}");
        };
        says(|server| "6.2.14".clone_into(&mut server.version), "is version 6.2.14: upgrade it to 7");
        says(|server| (server.product, server.version) = ("Valkey", "7.2.5".to_owned()), "upgrade it to 8");
        says(|server| server.cannot_save = true, "full disk");
        says(|server| server.cluster_is_whole = Some(false), "every slot");
        says(|server| server.round_trip = Duration::from_millis(80), "80.0 ms away");
    }
}
