//! The long outages: 60 seconds without Redis, PostgreSQL or both, at 500 requests per second over 200 keys on two
//! nodes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::consistency;
use crate::fault_kind::FaultKind;
use crate::fixture::FaultFixture;
use crate::load::{FaultLoad, FaultLoadOptions, NodeAddresses};
use crate::report::RunStats;
use crate::run::{RECOVERY_TIMEOUT, RunObservations, check_charge_invariant};

const KEYS: usize = 200;
const REQUESTS_PER_SECOND: u32 = 500;
const RESPONSE_TIME_MAX: Duration = Duration::from_millis(150);
const OUTAGE_DURATION: Duration = Duration::from_secs(60);
const OUTAGE_DURATION_SHORT: Duration = Duration::from_secs(4);
/// How much two nodes may grow: the local state of 200 keys, and allocator overhead.
const MEMORY_GROWTH_MAX_KIB: u64 = 48 * 1024;

pub(crate) struct OutageScenario {
    pub(crate) name: &'static str,
    kind: FaultKind,
}

pub(crate) const OUTAGES: [OutageScenario; 5] = [
    OutageScenario { name: "outage: redis killed", kind: FaultKind::RedisKilled },
    OutageScenario { name: "outage: postgres killed", kind: FaultKind::PostgresKilled },
    OutageScenario { name: "outage: both killed", kind: FaultKind::BothKilled },
    OutageScenario { name: "outage: redis frozen", kind: FaultKind::RedisFrozen },
    OutageScenario { name: "outage: replies dropped", kind: FaultKind::RedisRepliesDropped },
];

#[expect(clippy::print_stdout, reason = "the figures are printed")]
pub(crate) async fn run_outage(outage: &OutageScenario, is_short: bool) -> Result<RunStats> {
    let mut fixture = FaultFixture::open().await?;
    let keys = fixture.issue_keys(KEYS, "free").await?;
    let addresses: NodeAddresses = Arc::new(Mutex::new(fixture.node_addresses()));
    let options = FaultLoadOptions {
        clients: 40,
        requests_per_second: REQUESTS_PER_SECOND,
        seed: 1,
        disconnect_probability: 0.0,
    };
    let load = FaultLoad::start(&addresses, &keys, &options);
    // Long enough for each node to see each key.
    sleep(Duration::from_secs(5)).await;
    let before_kib = fixture.resident_kib()?;
    let injected_at = Instant::now();
    outage
        .kind
        .inject(&mut fixture, &addresses, if is_short { OUTAGE_DURATION_SHORT } else { OUTAGE_DURATION }, 1)
        .await?;
    let cleared_at = Instant::now();
    sleep(RECOVERY_TIMEOUT).await;
    let growth_kib = fixture.resident_kib()?.saturating_sub(before_kib);
    let requests = load.stop().await;
    let (recovery, charges) = consistency::await_recovery(&fixture, &keys, &[0; KEYS]).await?;
    let unverifiable = fixture.unverifiable_charges()?;
    let observations = RunObservations { keys, requests, injected_at, cleared_at, charges, unverifiable };
    let stats = RunStats::from_run(&observations, &recovery);
    check_charge_invariant(outage.kind, &observations)?;
    // While both are down, a node can only decide for keys that it has seen.
    let before = observations
        .requests
        .iter()
        .filter(|requests| requests.is_admitted() && requests.sent_at < observations.injected_at);
    let seen_keys: HashSet<(usize, usize)> = before.map(|requests| (requests.node_index, requests.key_index)).collect();
    let with_seen_keys =
        observations.requests.iter().filter(|requests| seen_keys.contains(&(requests.node_index, requests.key_index)));
    let (failed, all) =
        with_seen_keys.fold((0, 0), |(failed, all), requests| (failed + usize::from(!requests.is_admitted()), all + 1));
    println!("      {}: {failed} of {all} requests with known keys did not return 200", outage.name);
    ensure!(failed * 1000 <= all, "{failed} of {all} requests with known keys did not return 200");
    // The load continued for RECOVERY_TIMEOUT after the fault. By then Redis must decide again.
    ensure!(
        recovery.recovered_after < Duration::from_secs(1),
        "Redis decided again {:?} after {RECOVERY_TIMEOUT:?}",
        recovery.recovered_after
    );
    ensure!(is_short || stats.slowest <= RESPONSE_TIME_MAX, "the slowest response took {:?}", stats.slowest);
    ensure!(growth_kib <= MEMORY_GROWTH_MAX_KIB, "the nodes grew by {growth_kib} KiB");
    Ok(stats)
}
