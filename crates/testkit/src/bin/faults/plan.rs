//! What a seed decides: the kinds of faults, their times and the load.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

use crate::fault_kind::{FaultKind, FaultPart};
use crate::fixture::FaultTopology;

/// Every third run combines two kinds.
const COMBINED_EVERY: u64 = 3;
/// Every fifth run with a single Redis has remote nodes, whatever its kind.
const SITES_EVERY: u64 = 5;

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct RunPlan {
    pub(crate) seed: u64,
    /// The kind that the seed was used for. It may begin second.
    pub(crate) kind: FaultKind,
    pub(crate) steps: Vec<PlanStep>,
    pub(crate) before: Duration,
    pub(crate) after: Duration,
    pub(crate) requests_per_second: u32,
    /// Whether a key exceeds its burst limit.
    pub(crate) has_burst: bool,
}

/// When a fault begins and ends, after the load has run for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanStep {
    pub(crate) kind: FaultKind,
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

impl RunPlan {
    /// The plan of a seed for a kind.
    pub(crate) fn new(seed: u64, kind: FaultKind, is_short: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let partner = if turn(seed).is_multiple_of(COMBINED_EVERY) { choose_partner(kind, &mut rng) } else { None };
        let kinds = || [Some(kind), partner].into_iter().flatten();
        let loses_data = kinds().any(FaultKind::loses_data);
        // Three flush intervals before data is lost, so that most of it has been flushed.
        let before = match (loses_data, is_short) {
            (true, _) => 6_500..8_500,
            (false, true) => 800..1_200,
            (false, false) => 1_200..2_500,
        };
        let during = if is_short { 800..1_600 } else { 1_000..3_500 };
        // Held requests are delivered after every other timeout. A replica that is behind misses several changes.
        let is_long = |kind| {
            matches!(kind, FaultKind::RedisRequestsHeld | FaultKind::SiteRequestsHeld | FaultKind::PostgresFailover)
        };
        let during = if kinds().any(is_long) { 4_500..7_000 } else { during };
        let before = random_ms(&mut rng, before);
        let steps = plan_steps(kind, partner, random_ms(&mut rng, during), &mut rng);
        let after = random_ms(&mut rng, if is_short { 400..800 } else { 500..1_500 });
        let requests_per_second = *rng.choice(&[20, 120, 120, 300]).unwrap_or(&120);
        let needs_burst =
            |kind| matches!(kind, FaultKind::PausedWhileRedisIsDown | FaultKind::NodeStalled | FaultKind::SiteLinkCut);
        let has_burst = rng.u8(..3) == 0 || kinds().any(needs_burst);
        Self { seed, kind, steps, before, after, requests_per_second, has_burst }
    }

    /// The kind, and the one it is combined with.
    pub(crate) fn name(&self) -> String {
        let partners = self.steps.iter().map(|step| step.kind).filter(|kind| *kind != self.kind);
        [self.kind].into_iter().chain(partners).map(FaultKind::name).collect::<Vec<_>>().join(" + ")
    }

    pub(crate) fn topology(&self) -> FaultTopology {
        let needed = self.steps.iter().map(|step| step.kind.topology()).max().unwrap_or(FaultTopology::Single);
        let has_sites = needed == FaultTopology::Single && turn(self.seed) % SITES_EVERY == 2;
        if has_sites { FaultTopology::Sites } else { needed }
    }

    pub(crate) fn has(&self, kind: FaultKind) -> bool {
        self.steps.iter().any(|step| step.kind == kind)
    }
}

/// Different for each kind in each round of all kinds.
const fn turn(seed: u64) -> u64 {
    seed + seed / FaultKind::ALL.len() as u64
}

fn choose_partner(kind: FaultKind, rng: &mut Rng) -> Option<FaultKind> {
    let partners: Vec<FaultKind> =
        FaultKind::ALL.iter().copied().filter(|partner| kind.combines_with(*partner)).collect();
    rng.choice(&partners).copied()
}

/// Two faults overlap, or one happens during the other.
fn plan_steps(kind: FaultKind, partner: Option<FaultKind>, duration: Duration, rng: &mut Rng) -> Vec<PlanStep> {
    let Some(partner) = partner else { return vec![PlanStep { kind, from: Duration::ZERO, until: duration }] };
    // A node starts only while both stores answer.
    let starts_node = kind.starts_node() || partner.starts_node();
    let (first, second) =
        if kind.starts_node() || (!partner.starts_node() && rng.bool()) { (partner, kind) } else { (kind, partner) };
    let is_nested = !starts_node && first.part() != FaultPart::Clients && rng.bool();
    let second_until = if is_nested { duration * 2 / 3 } else { duration * 4 / 3 };
    vec![
        PlanStep { kind: first, from: Duration::ZERO, until: duration },
        PlanStep { kind: second, from: duration / 3, until: second_until },
    ]
}

fn random_ms(rng: &mut Rng, range: Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_decides_everything() {
        let plan = |seed| format!("{:?}", RunPlan::new(seed, FaultKind::RedisKilled, false));
        assert_eq!(plan(6), plan(6));
        assert_ne!(plan(6), plan(7));
    }

    #[test]
    fn every_kind_meets_remote_nodes_and_a_second_fault() {
        let kinds = FaultKind::ALL;
        let runs = |kind: usize| {
            let seeds = (0..5).map(move |round| (kind + round * kinds.len()) as u64);
            seeds.map(move |seed| RunPlan::new(seed, kinds[kind], false))
        };
        for (index, kind) in kinds.iter().enumerate() {
            let has_sites = runs(index).any(|plan| plan.topology() == FaultTopology::Sites);
            let has_other_stores = ![FaultTopology::Single, FaultTopology::Sites].contains(&kind.topology());
            assert!(has_sites || has_other_stores, "{}", kind.name());
            let has_partner = kinds.iter().any(|other| kind.combines_with(*other));
            assert_eq!(runs(index).any(|plan| plan.steps.len() == 2), has_partner, "{}", kind.name());
        }
    }

    #[test]
    fn third_of_the_runs_combines_two_kinds() {
        let kinds = FaultKind::ALL.iter().cycle();
        let plans: Vec<RunPlan> = (1..=300).zip(kinds).map(|(seed, kind)| RunPlan::new(seed, *kind, false)).collect();
        let combined = plans.iter().filter(|plan| plan.steps.len() == 2).count();
        assert!(combined >= 90, "{combined}");
        let kinds = FaultKind::ALL.iter().filter(|kind| plans.iter().any(|plan| plan.has(**kind))).count();
        assert_eq!(kinds, FaultKind::ALL.len());
        for plan in plans.iter().filter(|plan| plan.steps.iter().any(|step| step.kind.loses_data())) {
            assert!(plan.before >= Duration::from_secs(6), "{plan:?}");
        }
    }
}
