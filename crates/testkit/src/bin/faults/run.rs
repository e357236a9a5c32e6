//! One seeded run: load, key changes and faults, then recovery and the checkers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use fastrand::Rng;
use tokio::time::sleep;

use crate::changes::{ChangedKeys, KeyChanges};
use crate::checks;
use crate::counts;
use crate::dump;
use crate::fault_kind::FaultKind;
use crate::fixture::{FREE_PLAN, FaultFixture, FaultTopology, OPTIMISTIC_NODE, SMALL_PLAN, unverifiable_in_logs};
use crate::history::{ChangeOutcome, FaultEffect, KeyAction, KeyFacts};
use crate::inject::{ActiveFault, Injection};
use crate::load::{FaultLoad, FaultLoadOptions, LoadClient, LoadContext, LoadKey};
use crate::plan::RunPlan;
use crate::recorder::Recorder;
use crate::report::RunStats;
use crate::sampler::{NodeSampler, lookup_outcomes};
use crate::timeline::{NOTIFY_MAX, recovery_max};

const OPTIMISTIC_REQUESTS: &str = "ipseity_optimistic_requests_total";
const TICK_INTERVAL: Duration = Duration::from_millis(40);
/// A node may keep refusing a key for a second after it was resumed.
const REFUSAL_CACHE: Duration = Duration::from_millis(1_600);
/// The node that gets all requests of the key that exceeds its limit while that node stalls.
const STALLED_NODE: usize = 1;

/// The keys of a run by role.
struct RunKeys {
    /// Used all the time.
    steady: Vec<LoadKey>,
    switched: LoadKey,
    rotated: LoadKey,
    /// Not used after the fault begins.
    quiet: Vec<LoadKey>,
    /// Not used before the fault begins.
    fresh: Vec<LoadKey>,
    /// Exceeds its burst limit.
    burst: Option<LoadKey>,
}

impl RunKeys {
    async fn issue(fixture: &FaultFixture, recorder: &Recorder, has_burst: bool) -> Result<Self> {
        let burst = if has_burst { 1 } else { 0 };
        let roles: Vec<(&str, &str)> = [
            ("small", SMALL_PLAN, 2),
            ("steady", FREE_PLAN, 6),
            ("switched", FREE_PLAN, 1),
            ("rotated", FREE_PLAN, 1),
            ("quiet", FREE_PLAN, 2),
            ("fresh", FREE_PLAN, 2),
            ("burst", FREE_PLAN, burst),
        ]
        .into_iter()
        .flat_map(|(role, plan, count)| std::iter::repeat_n((role, plan), count))
        .collect();
        let plans: Vec<&str> = roles.iter().map(|(_, plan)| *plan).collect();
        let mut keys = fixture.issue_keys(0, &plans).await?;
        for (key, (role, plan)) in keys.iter().zip(&roles) {
            recorder.history().keys.push(KeyFacts::new(role, &key.id, FaultFixture::plan_limit(plan)));
        }
        let mut take = |count: usize| keys.drain(..count).collect::<Vec<LoadKey>>();
        Ok(Self {
            steady: take(8),
            switched: take(1).remove(0),
            rotated: take(1).remove(0),
            quiet: take(2),
            fresh: take(2),
            burst: take(burst).pop(),
        })
    }

    /// Keys of the main load.
    fn loaded(&self) -> Vec<LoadKey> {
        self.steady.iter().chain([&self.switched, &self.rotated]).cloned().collect()
    }

    /// All but the quiet ones.
    fn not_quiet(&self) -> Vec<LoadKey> {
        self.loaded().into_iter().chain(self.fresh.iter().chain(&self.burst).cloned()).collect()
    }
}

/// Runs a plan. If it fails, its history and the nodes' logs are written to the directory `logs`.
pub(crate) async fn run_plan(fixture: &mut FaultFixture, plan: &RunPlan, logs: Option<&Path>) -> Result<RunStats> {
    let recorder = Recorder::start();
    let result = run_and_check(fixture, plan, &recorder).await;
    if let (Err(error), Some(dir)) = (&result, logs) {
        let run = format!("{}-{}", plan.seed, plan.name().replace(" + ", "-and-"));
        dump::write(dir, &run, &recorder.history(), &fixture.logs()?, &format!("{error:#}"))?;
    }
    result
}

async fn run_and_check(fixture: &mut FaultFixture, plan: &RunPlan, recorder: &Recorder) -> Result<RunStats> {
    fixture.number_processes();
    let counted_before = CountedBefore::read(fixture).await?;
    let load = LoadContext {
        targets: Arc::clone(&fixture.targets),
        recorder: recorder.clone(),
        disconnects: Arc::new(AtomicBool::new(false)),
    };
    let keys = RunKeys::issue(fixture, recorder, plan.has_burst).await?;
    let command_line = fixture.command_line.clone();
    let sampler = NodeSampler::start(&fixture.ops_targets, recorder);
    let mut injection =
        Injection { fixture, load: &load, rng: Rng::with_seed(plan.seed ^ 0xFA), midnight: None, redis_replica: None };
    for step in &plan.steps {
        injection.prepare(step.kind, plan.before + step.from).await?;
    }
    let options = |requests_per_second, clients, salt| FaultLoadOptions {
        clients,
        requests_per_second,
        seed: plan.seed ^ salt,
        node: None,
    };
    let main_load = FaultLoad::start(&load, &keys.loaded(), &options(plan.requests_per_second, 12, 0));
    let quiet_load = FaultLoad::start(&load, &keys.quiet, &options(20, 2, 1));
    let changed =
        ChangedKeys { switched: keys.switched.clone(), rotated: keys.rotated.clone(), resumed: keys.burst.clone() };
    let changes = KeyChanges::start(command_line, recorder, changed, plan.seed);
    sleep(plan.before).await;
    quiet_load.stop().await;
    let fresh_load = FaultLoad::start(&load, &keys.fresh, &options(10, 2, 2));
    let burst_load = keys.burst.as_ref().map(|key| {
        let node = plan.has(FaultKind::NodeStalled).then_some(STALLED_NODE);
        let options = FaultLoadOptions { node, ..options(250, 16, 3) };
        FaultLoad::start(&load, std::slice::from_ref(key), &options)
    });
    let injected = inject_steps(&mut injection, plan).await;
    sleep(plan.after).await;
    for load in [Some(main_load), Some(fresh_load), burst_load].into_iter().flatten() {
        load.stop().await;
    }
    changes.stop().await?;
    injected?;
    let recovered_after = counts::await_recovery(fixture).await?;
    let is_in_time = recovered_after <= recovery_max(&recorder.history());
    ensure!(is_in_time, "Redis decided again after {recovered_after:?}");
    probe_keys(fixture, &load, &keys, plan).await?;
    drop(sampler);
    complete_history(fixture, recorder, &counted_before).await?;
    let history = recorder.history();
    let violations = checks::find_violations(&history);
    if !violations.is_empty() {
        bail!("{}", violations.join("\n          "));
    }
    Ok(RunStats::of(&history, recovered_after))
}

/// Begins and ends the faults of a plan at their times.
async fn inject_steps(injection: &mut Injection<'_>, plan: &RunPlan) -> Result<()> {
    let start = tokio::time::Instant::now();
    let mut waiting = plan.steps.clone();
    let mut active: Vec<(Duration, ActiveFault)> = Vec::new();
    while !waiting.is_empty() || !active.is_empty() {
        let now = start.elapsed();
        if let Some(position) = waiting.iter().position(|step| step.from <= now) {
            let step = waiting.remove(position);
            active.push((step.until, injection.begin(step.kind).await?));
        } else if let Some(position) = active.iter().position(|(until, _)| *until <= now) {
            injection.end(active.remove(position).1).await?;
        } else {
            for (_, fault) in &mut active {
                injection.tick(fault).await?;
            }
            sleep(TICK_INTERVAL).await;
        }
    }
    Ok(())
}

/// After recovery, every key works as its state says, and a revocation takes effect immediately, or at an optimistic node
/// after the notice.
async fn probe_keys(fixture: &FaultFixture, load: &LoadContext, keys: &RunKeys, plan: &RunPlan) -> Result<()> {
    let change = async |key: &LoadKey, action| fixture.command_line.change(&load.recorder, key, action).await;
    change(&keys.switched, KeyAction::Reactivate).await;
    if let Some(burst) = &keys.burst {
        change(burst, KeyAction::Resume).await;
    }
    sleep(REFUSAL_CACHE).await;
    let nodes = 0..fixture.deployment.nodes.len();
    let optimistic_before = fixture.sum_metric(OPTIMISTIC_REQUESTS).await?;
    send_to_nodes(load, nodes.clone(), &keys.not_quiet()).await;
    let is_optimistic = fixture.sum_metric(OPTIMISTIC_REQUESTS).await? > optimistic_before;
    // The slot of a killed process stays reserved for some seconds.
    let has_slot = fixture.topology == FaultTopology::Sites && !plan.has(FaultKind::RemoteNodeKilled);
    ensure!(is_optimistic || !has_slot, "after recovery every request of the optimistic node waited for home");
    let is_notified = |node: &usize| fixture.topology == FaultTopology::Sites && *node == OPTIMISTIC_NODE;
    let revoked = [&keys.switched, &keys.rotated, &keys.steady[0]];
    for key in revoked {
        let outcome = change(key, KeyAction::Deactivate).await;
        if outcome == ChangeOutcome::InEffect {
            let others = nodes.clone().filter(|node| !is_notified(node));
            send_to_nodes(load, others, std::slice::from_ref(key)).await;
        }
    }
    for node in nodes.filter(is_notified) {
        sleep(2 * NOTIFY_MAX).await;
        send_to_nodes(load, std::iter::once(node), &revoked.map(Clone::clone)).await;
    }
    Ok(())
}

/// Sends two requests of each key to each of these nodes.
async fn send_to_nodes(load: &LoadContext, nodes: impl Iterator<Item = usize>, keys: &[LoadKey]) {
    let mut rng = Rng::with_seed(1);
    for node in nodes {
        let mut client = LoadClient::new(load, node);
        for key in keys.iter().chain(keys) {
            client.send(key, &mut rng).await;
        }
    }
}

/// Counters at the start of a run.
pub(crate) struct CountedBefore {
    outcomes: BTreeMap<usize, BTreeMap<String, u64>>,
    unverifiable_without_key: u64,
}

impl CountedBefore {
    pub(crate) async fn read(fixture: &FaultFixture) -> Result<Self> {
        let unverifiable = unverifiable_in_logs(&fixture.logs()?);
        Ok(Self {
            outcomes: node_outcomes(fixture).await?,
            unverifiable_without_key: unverifiable.get("").copied().unwrap_or(0),
        })
    }
}

async fn node_outcomes(fixture: &FaultFixture) -> Result<BTreeMap<usize, BTreeMap<String, u64>>> {
    let mut outcomes = BTreeMap::new();
    for (process, node) in fixture.processes().into_iter().zip(&fixture.deployment.nodes) {
        outcomes.insert(process, lookup_outcomes(&node.metrics().await?));
    }
    Ok(outcomes)
}

/// Adds the counts of stores and nodes to what was recorded.
pub(crate) async fn complete_history(
    fixture: &FaultFixture,
    recorder: &Recorder,
    before: &CountedBefore,
) -> Result<()> {
    let ids: Vec<String> = recorder.history().keys.iter().map(|key| key.id.clone()).collect();
    let (charges, unflushed) = counts::await_flush(fixture, &ids).await?;
    let refused: Vec<u64> = {
        let history = recorder.history();
        // A killed node took its refusals with it.
        let is_lost = history.windows(FaultEffect::NodeKilled).next().is_some();
        let requests = |key| history.key_requests(key).filter(|request| request.status() == Some(429));
        let refused = |key| if is_lost { 0 } else { requests(key).count() as u64 };
        (0..ids.len()).map(refused).collect()
    };
    let refusals = counts::await_refusals(fixture, &ids, &refused).await;
    let outcomes = node_outcomes(fixture).await?;
    let mut history = recorder.history();
    [history.remote, history.optimistic] = fixture.remote_processes();
    (history.charges, history.unflushed, history.refusals) = (charges, unflushed, refusals);
    for (process, outcomes) in outcomes {
        for (outcome, count) in outcomes {
            let earlier = before.outcomes.get(&process).and_then(|outcomes| outcomes.get(&outcome));
            history.outcomes.insert((process, outcome), count - earlier.copied().unwrap_or(0));
        }
    }
    for (id, count) in unverifiable_in_logs(&fixture.logs()?) {
        match ids.iter().position(|key| *key == id) {
            Some(key) => drop(history.unverifiable.by_key.insert(key, count)),
            // Keys of earlier runs are in the log too.
            None if id.is_empty() => history.unverifiable.without_key = count - before.unverifiable_without_key,
            None => {}
        }
    }
    Ok(())
}
