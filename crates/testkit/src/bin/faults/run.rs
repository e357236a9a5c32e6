//! One seeded run: load with a fault, and the checks afterwards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::consistency::{self, ChargeCounts, RecoveryTimes};
use crate::fault_kind::FaultKind;
use crate::fixture::{FaultFixture, LoadKey, NODES};
use crate::load::{FaultLoad, FaultLoadOptions, FaultRequest, NodeAddresses};
use crate::report::RunStats;

const KEYS: usize = 10;
const SMALL_LIMIT: u64 = 60;
/// Usage that is not yet flushed when Redis loses its data: one interval plus the duration of a flush.
const FLUSH_INTERVAL: Duration = Duration::from_millis(3_000);
/// Timeout of a charge, and the maximum age of a pending charge.
const CHARGE_TIMEOUT: Duration = Duration::from_millis(50);
const PENDING_CHARGE_MAX_AGE: Duration = Duration::from_secs(5);
pub(crate) const RECOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Everything observed in a run.
pub(crate) struct RunObservations {
    pub(crate) keys: Vec<LoadKey>,
    pub(crate) requests: Vec<FaultRequest>,
    pub(crate) injected_at: Instant,
    pub(crate) cleared_at: Instant,
    pub(crate) charges: ChargeCounts,
    pub(crate) unverifiable: u64,
}

pub(crate) async fn run_seed(
    fixture: &mut FaultFixture,
    kind: FaultKind,
    seed: u64,
    is_short: bool,
) -> Result<RunStats> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut keys = fixture.issue_keys(KEYS, "free").await?;
    keys.extend(fixture.issue_keys(1, "small").await?);
    let unverifiable_before = fixture.unverifiable_charges()?;
    let addresses: NodeAddresses = Arc::new(Mutex::new(fixture.node_addresses()));
    let disconnect_probability = if kind == FaultKind::ClientsDisconnect { 0.2 } else { 0.0 };
    let load = FaultLoad::start(
        &addresses,
        &keys,
        &FaultLoadOptions { clients: 12, requests_per_second: 120, seed, disconnect_probability },
    );
    let [before, during, after] =
        if is_short { [1_000..1_500, 800..1_600, 400..800] } else { [1_200..2_500, 1_000..3_500, 500..1_500] };
    sleep(Duration::from_millis(rng.u64(before))).await;
    let injected_at = Instant::now();
    let duration = Duration::from_millis(rng.u64(during));
    let paused_key_load = start_paused_key_load(fixture, kind, &addresses).await?;
    kind.inject(fixture, &addresses, duration, seed).await?;
    let cleared_at = Instant::now();
    sleep(Duration::from_millis(rng.u64(after))).await;
    let mut requests = load.stop().await;
    if let Some(paused_key_load) = paused_key_load {
        let offset = keys.len();
        keys.push(paused_key_load.key);
        requests.extend(
            paused_key_load
                .load
                .stop()
                .await
                .into_iter()
                .map(|requests| FaultRequest { key_index: requests.key_index + offset, ..requests }),
        );
    }
    let mut observations =
        RunObservations { keys, requests, injected_at, cleared_at, charges: ChargeCounts::new(), unverifiable: 0 };
    let recovery;
    (recovery, observations.charges) =
        consistency::await_recovery(fixture, &observations.keys, &max_lost_with_redis(kind, &observations)).await?;
    observations.unverifiable = fixture.unverifiable_charges()? - unverifiable_before;
    check_run(fixture, kind, &observations, &recovery).await?;
    Ok(RunStats::from_run(&observations, &recovery))
}

/// Extra load on a key that exceeds the burst limit.
struct PausedKeyLoad {
    key: LoadKey,
    load: FaultLoad,
}

/// Starts the extra load that a kind needs.
async fn start_paused_key_load(
    fixture: &FaultFixture,
    kind: FaultKind,
    addresses: &NodeAddresses,
) -> Result<Option<PausedKeyLoad>> {
    if kind != FaultKind::PausedWhileRedisIsDown {
        return Ok(None);
    }
    // Exceeds the burst limit on each node during the fault.
    let key = fixture.issue_keys(1, "free").await?.remove(0);
    let options = FaultLoadOptions { clients: 8, requests_per_second: 700, seed: 7, disconnect_probability: 0.0 };
    let load = FaultLoad::start(addresses, std::slice::from_ref(&key), &options);
    Ok(Some(PausedKeyLoad { key, load }))
}

async fn check_run(
    fixture: &FaultFixture,
    kind: FaultKind,
    observations: &RunObservations,
    recovery: &RecoveryTimes,
) -> Result<()> {
    ensure!(recovery.recovered_after <= RECOVERY_TIMEOUT, "Redis decided again after {:?}", recovery.recovered_after);
    check_charge_invariant(kind, observations)?;
    check_limits(kind, observations)?;
    check_pauses(kind, observations)?;
    if kind.keeps_one_store() && !kind.has_node_downtime() && kind != FaultKind::ClientsDisconnect {
        let unanswered = observations.requests.iter().filter(|request| request.is_unanswered()).count();
        ensure!(
            unanswered * 1000 <= observations.requests.len(),
            "{unanswered} of {} requests had no response",
            observations.requests.len()
        );
    }
    if kind == FaultKind::RevokedWhileRedisIsDown {
        check_revoked_key(fixture, observations).await?;
    }
    Ok(())
}

/// Checks `admitted − lost ≤ charged ≤ admitted + unanswered` for each key and day.
pub(crate) fn check_charge_invariant(kind: FaultKind, observations: &RunObservations) -> Result<()> {
    let mut unverifiable = observations.unverifiable;
    for (number, key) in observations.keys.iter().enumerate() {
        let key_requests = || observations.requests.iter().filter(|request| request.key_index == number);
        let unanswered = key_requests().filter(|request| request.is_unanswered()).count() as u64;
        let mut admitted: BTreeMap<u64, u64> = BTreeMap::new();
        for day in key_requests().filter(|request| request.is_admitted()).filter_map(FaultRequest::day) {
            *admitted.entry(day).or_default() += 1;
        }
        for (day, admitted) in admitted {
            let charged = observations.charges.get(&(key.id.clone(), day)).copied().unwrap_or(0);
            let lost = key_requests()
                .filter(|request| request.is_admitted() && may_be_lost(kind, observations, request))
                .count() as u64;
            let missing = admitted.saturating_sub(charged + lost);
            ensure!(missing <= unverifiable, "{admitted} admitted, {charged} charged, at most {lost} may be lost");
            unverifiable -= missing;
            ensure!(
                charged <= admitted + unanswered,
                "{admitted} admitted, {unanswered} unanswered, {charged} charged"
            );
        }
    }
    Ok(())
}

/// How many requests of each key Redis may have lost. A node rebuilds a record from flushed usage and its local counts,
/// while the other node has not flushed its counts yet.
fn max_lost_with_redis(kind: FaultKind, observations: &RunObservations) -> Vec<u64> {
    let lost = |number| {
        let key_requests =
            observations.requests.iter().filter(|request| request.key_index == number && request.is_admitted());
        key_requests.filter(|request| may_be_lost_with_redis(kind, observations, request)).count() as u64
    };
    (0..observations.keys.len()).map(lost).collect()
}

fn may_be_lost_with_redis(kind: FaultKind, observations: &RunObservations, request: &FaultRequest) -> bool {
    kind.loses_counts()
        && request.sent_at + FLUSH_INTERVAL >= observations.injected_at
        && request.sent_at <= observations.cleared_at
}

fn may_be_lost(kind: FaultKind, observations: &RunObservations, request: &FaultRequest) -> bool {
    let with_redis = may_be_lost_with_redis(kind, observations, request);
    // The node decided locally for requests in flight when the fault began.
    let with_node = kind.loses_node_state()
        && request.node_index == 1
        && request.finished_at() >= observations.injected_at
        && request.sent_at <= observations.cleared_at;
    // On a busy machine a charge may time out without a fault. It then waits in the node's memory to be reconciled.
    let was_late = request.outcome.is_some_and(|outcome| outcome.took >= CHARGE_TIMEOUT);
    let kills_a_node = kind.loses_node_state() || kind == FaultKind::NodeKilled;
    let with_pending_charges = kills_a_node
        && request.node_index == 1
        && was_late
        && request.sent_at + PENDING_CHARGE_MAX_AGE >= observations.injected_at;
    with_redis || with_node || with_pending_charges
}

/// Without a fault no key exceeds its limit. With one, the excess is at most what was admitted around the fault.
fn check_limits(kind: FaultKind, observations: &RunObservations) -> Result<()> {
    let small = KEYS;
    let admitted =
        || observations.requests.iter().filter(|request| request.key_index == small && request.is_admitted());
    let over = (admitted().count() as u64).saturating_sub(SMALL_LIMIT);
    let is_faultless = matches!(kind, FaultKind::NoFault | FaultKind::ClientsDisconnect | FaultKind::ScriptsFlushed);
    let near_fault =
        admitted().filter(|request| request.sent_at + FLUSH_INTERVAL >= observations.injected_at).count() as u64;
    // A charge that times out counts as a fault, because the node then decides locally.
    let late = admitted()
        .filter(|request| request.outcome.is_some_and(|outcome| outcome.took >= CHARGE_TIMEOUT))
        .count() as u64;
    let allowance = if is_faultless { late } else { near_fault };
    ensure!(over <= allowance, "{over} requests above the limit, but only {allowance} were admitted around the fault");
    Ok(())
}

/// Keys are paused only above the burst limit. After a pause no request is admitted, as long as Redis or PostgreSQL is
/// available.
fn check_pauses(kind: FaultKind, observations: &RunObservations) -> Result<()> {
    for number in 0..observations.keys.len() {
        let key_requests = || observations.requests.iter().filter(|request| request.key_index == number);
        let burst_refusals = key_requests().filter(|request| request.outcome.is_some_and(|outcome| outcome.is_burst));
        let Some(first) = burst_refusals.filter_map(|request| Some(request.sent_at + request.outcome?.took)).min()
        else {
            continue;
        };
        let sent = key_requests().count();
        ensure!(sent > ipseity_domain::BURST_LIMIT, "a key was paused after {sent} requests");
        let late = key_requests().filter(|request| request.is_admitted() && request.sent_at > first).count();
        // The notification of a pause takes a moment to reach the other node.
        let after_notice = key_requests()
            .filter(|request| request.is_admitted() && request.sent_at > first + NOTIFY_DELAY_MAX)
            .count();
        ensure!(
            !kind.keeps_one_store() || after_notice == 0,
            "{after_notice} (of {late}) requests were admitted after the pause"
        );
        let total = key_requests().filter(|request| request.is_admitted()).count();
        ensure!(total <= ipseity_domain::BURST_LIMIT * NODES, "{total} requests were admitted within 60 seconds");
    }
    Ok(())
}

/// Maximum delay of a PostgreSQL notification between nodes.
const NOTIFY_DELAY_MAX: Duration = Duration::from_millis(100);

/// A key that was revoked while Redis was down stays revoked.
async fn check_revoked_key(fixture: &FaultFixture, observations: &RunObservations) -> Result<()> {
    let Some(key) = observations.keys.first() else { return Ok(()) };
    fixture.deployment.cli(&["key", "deactivate", &key.id]).await?.ensure_success()?;
    for address in fixture.node_addresses() {
        let reply =
            ipseity_testkit::TestClient::new(address).get("/api/v1/ip", &[("authorization", &key.bearer)]).await?;
        ensure!(reply.status == 403, "a revoked key returns {}", reply.status);
    }
    Ok(())
}
