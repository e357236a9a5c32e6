//! The long outages: 60 seconds without Redis, PostgreSQL, both or home, at 500 requests per second over 200 keys on all
//! nodes.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, ensure};
use fastrand::Rng;
use tokio::time::{Instant, sleep};

use crate::checks;
use crate::counts;
use crate::fault_kind::FaultKind;
use crate::fixture::{FREE_PLAN, FaultFixture};
use crate::history::{History, KeyFacts};
use crate::inject::Injection;
use crate::load::{FaultLoad, FaultLoadOptions, LoadContext};
use crate::recorder::Recorder;
use crate::report::RunStats;
use crate::run::{CountedBefore, complete_history};
use crate::sampler::NodeSampler;
use crate::timeline::RECOVERY_MAX;

const KEYS: usize = 200;
const REQUESTS_PER_SECOND: u32 = 500;
const RESPONSE_TIME_MAX: Duration = Duration::from_millis(150);
const OUTAGE_DURATION: Duration = Duration::from_secs(60);
const OUTAGE_DURATION_SHORT: Duration = Duration::from_secs(4);
const TICK_INTERVAL: Duration = Duration::from_millis(100);
/// How much a node may grow: the local state of 200 keys, and allocator overhead.
const MEMORY_GROWTH_MAX_KIB: u64 = 24 * 1024;

pub(crate) struct OutageScenario {
    pub(crate) name: &'static str,
    kind: FaultKind,
}

pub(crate) const OUTAGES: [OutageScenario; 6] = [
    OutageScenario { name: "outage: redis killed", kind: FaultKind::RedisKilled },
    OutageScenario { name: "outage: postgres killed", kind: FaultKind::PostgresKilled },
    OutageScenario { name: "outage: both killed", kind: FaultKind::BothKilled },
    OutageScenario { name: "outage: redis frozen", kind: FaultKind::RedisFrozen },
    OutageScenario { name: "outage: replies dropped", kind: FaultKind::RedisRepliesDropped },
    OutageScenario { name: "outage: sites cut off", kind: FaultKind::SiteLinkCut },
];

pub(crate) async fn run_outage(outage: &OutageScenario, is_short: bool) -> Result<RunStats> {
    let mut fixture = FaultFixture::open(outage.kind.topology()).await?;
    let recorder = Recorder::start();
    let counted_before = CountedBefore::read(&fixture).await?;
    let keys = fixture.issue_keys(0, &[FREE_PLAN; KEYS]).await?;
    let daily_limit = FaultFixture::plan_limit(FREE_PLAN);
    recorder.history().keys.extend(keys.iter().map(|key| KeyFacts::new("steady", &key.id, daily_limit)));
    let load = LoadContext {
        targets: Arc::clone(&fixture.targets),
        recorder: recorder.clone(),
        disconnects: Arc::new(AtomicBool::new(false)),
    };
    let options = FaultLoadOptions { clients: 40, requests_per_second: REQUESTS_PER_SECOND, seed: 1, node: None };
    let sampler = NodeSampler::start(&fixture.ops_targets, &recorder);
    let clients = FaultLoad::start(&load, &keys, &options);
    // Long enough for each node to see each key.
    sleep(Duration::from_secs(5)).await;
    let before_kib = fixture.resident_kib()?;
    let injected_at = recorder.now();
    let duration = if is_short { OUTAGE_DURATION_SHORT } else { OUTAGE_DURATION };
    let mut injection =
        Injection { fixture: &mut fixture, load: &load, rng: Rng::with_seed(1), midnight: None, redis_replica: None };
    let mut active = injection.begin(outage.kind).await?;
    let until = Instant::now() + duration;
    while Instant::now() < until {
        injection.tick(&mut active).await?;
        sleep(TICK_INTERVAL).await;
    }
    injection.end(active).await?;
    sleep(RECOVERY_MAX).await;
    let growth_kib = fixture.resident_kib()?.saturating_sub(before_kib);
    clients.stop().await;
    let recovered_after = counts::await_recovery(&fixture).await?;
    drop(sampler);
    complete_history(&fixture, &recorder, &counted_before).await?;
    let history = recorder.history();
    let stats = RunStats::of(&history, recovered_after);
    let violations = checks::find_violations(&history);
    ensure!(violations.is_empty(), "{}", violations.join("\n          "));
    check_known_keys(outage.name, &history, injected_at)?;
    // The load continued for RECOVERY_MAX after the fault. By then Redis must decide again.
    ensure!(recovered_after < Duration::from_secs(1), "Redis decided again {recovered_after:?} after {RECOVERY_MAX:?}");
    ensure!(is_short || stats.slowest <= RESPONSE_TIME_MAX, "the slowest response took {:?}", stats.slowest);
    let growth_max_kib = MEMORY_GROWTH_MAX_KIB * fixture.deployment.nodes.len() as u64;
    ensure!(growth_kib <= growth_max_kib, "the nodes grew by {growth_kib} KiB");
    Ok(stats)
}

/// While both stores are down, a node can only decide for keys that it has seen. Those it must answer.
#[expect(clippy::print_stdout, reason = "the figures are printed")]
fn check_known_keys(name: &str, history: &History, injected_at: Duration) -> Result<()> {
    let before = history.requests.iter().filter(|request| request.is_admitted() && request.end < injected_at);
    let seen: HashSet<(usize, usize)> = before.map(|request| (request.process, request.key)).collect();
    let of_known = || history.requests.iter().filter(|request| seen.contains(&(request.process, request.key)));
    let (all, failed) = (of_known().count(), of_known().filter(|request| !request.is_admitted()).count());
    println!("      {name}: {failed} of {all} requests with known keys did not return 200");
    ensure!(failed * 1000 <= all, "{failed} of {all} requests with known keys did not return 200");
    Ok(())
}
